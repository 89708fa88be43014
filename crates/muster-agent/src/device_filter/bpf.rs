//! The device filter as a BPF program, assembled here and loaded by `bpf(2)`.
//!
//! The kernel runs the program whenever a process of the cgroup opens or makes a device node, with the type of the
//! device, the kind of access and the two numbers of the device. It answers 1 to allow and 0 to refuse.

// `bpf(2)` has no safe wrapper in rustix. The two calls below are the only unsafe ones.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use super::{DeviceFilterError, DeviceNodes, DeviceRule};

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_ATTACH: libc::c_int = 8;
const BPF_PROG_TYPE_CGROUP_DEVICE: u32 = 15;
const BPF_CGROUP_DEVICE: u32 = 6;
/// Besides the filters of the cgroups above, which systemd may have set: all must allow.
const BPF_F_ALLOW_MULTI: u32 = 2;

/// The type of a device in the lower half of the first word of the context, the access in its upper half.
const TYPE_BLOCK: i32 = 1;
const TYPE_CHARACTER: i32 = 2;
const ACCESS_MKNOD: i32 = 1;
const ACCESS_SHIFT: i32 = 16;
/// Offsets in the context, `struct bpf_cgroup_dev_ctx`.
const OFFSET_ACCESS_AND_TYPE: i16 = 0;
const OFFSET_MAJOR: i16 = 4;
const OFFSET_MINOR: i16 = 8;

/// Registers: R0 holds the answer, R1 the context.
const ANSWER: u8 = 0;
const CONTEXT: u8 = 1;
const TYPE: u8 = 2;
const ACCESS: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;

/// One instruction, `struct bpf_insn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct Instruction {
    code: u8,
    /// The destination register in the lower half, the source register in the upper.
    registers: u8,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    const fn new(code: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> Instruction {
        Instruction { code, registers: destination | (source << 4), offset, immediate }
    }

    /// `destination = *(u32 *)(context + offset)`
    const fn load_word(destination: u8, offset: i16) -> Instruction {
        Instruction::new(0x61, destination, CONTEXT, offset, 0) // BPF_LDX | BPF_W | BPF_MEM
    }

    /// `destination = immediate`
    const fn set(destination: u8, immediate: i32) -> Instruction {
        Instruction::new(0xb7, destination, 0, 0, immediate) // BPF_ALU64 | BPF_MOV | BPF_K
    }

    /// `destination &= immediate`, as 32 bits
    const fn and(destination: u8, immediate: i32) -> Instruction {
        Instruction::new(0x54, destination, 0, 0, immediate) // BPF_ALU | BPF_AND | BPF_K
    }

    /// `destination >>= immediate`, as 32 bits
    const fn shift_right(destination: u8, immediate: i32) -> Instruction {
        Instruction::new(0x74, destination, 0, 0, immediate) // BPF_ALU | BPF_RSH | BPF_K
    }

    /// Skip `count` instructions if `register != immediate`.
    const fn skip_if_not_equal(register: u8, immediate: i32, count: i16) -> Instruction {
        Instruction::new(0x55, register, 0, count, immediate) // BPF_JMP | BPF_JNE | BPF_K
    }

    /// Return R0.
    const fn exit() -> Instruction {
        Instruction::new(0x95, 0, 0, 0, 0) // BPF_JMP | BPF_EXIT
    }
}

/// The program for an allow-list. Each rule is a block that is skipped as soon as one comparison fails.
fn program(rules: &[DeviceRule], nodes: DeviceNodes) -> Vec<Instruction> {
    let mut code = vec![
        Instruction::load_word(TYPE, OFFSET_ACCESS_AND_TYPE),
        Instruction::load_word(ACCESS, OFFSET_ACCESS_AND_TYPE),
        Instruction::load_word(MAJOR, OFFSET_MAJOR),
        Instruction::load_word(MINOR, OFFSET_MINOR),
        Instruction::and(TYPE, 0xffff),
        Instruction::shift_right(ACCESS, ACCESS_SHIFT),
        Instruction::and(ACCESS, ACCESS_MKNOD),
        // A task may use devices, and make no node for one.
        Instruction::set(ANSWER, i32::from(nodes == DeviceNodes::Made)),
        Instruction::skip_if_not_equal(ACCESS, ACCESS_MKNOD, 1),
        Instruction::exit(),
        Instruction::set(ANSWER, 0),
    ];
    rules.iter().for_each(|rule| code.extend(rule_block(rule)));
    code.push(Instruction::exit());
    code
}

fn rule_block(rule: &DeviceRule) -> Vec<Instruction> {
    let kind = if rule.is_block { TYPE_BLOCK } else { TYPE_CHARACTER };
    let mut wanted = vec![(TYPE, kind), (MAJOR, rule.major.cast_signed())];
    wanted.extend(rule.minor.map(|minor| (MINOR, minor.cast_signed())));
    let answer = [Instruction::set(ANSWER, 1), Instruction::exit()];
    let count = wanted.len();
    let compare = |(index, (register, value)): (usize, (u8, i32))| {
        // Past the comparisons that follow and the answer: at most five instructions.
        let skipped = i16::try_from(count - 1 - index + answer.len()).unwrap_or(i16::MAX);
        Instruction::skip_if_not_equal(register, value, skipped)
    };
    wanted.into_iter().enumerate().map(compare).chain(answer).collect()
}

/// The part of `union bpf_attr` that loads a program.
#[repr(C)]
#[derive(Default)]
struct LoadAttributes {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buffer: u64,
    kernel_version: u32,
    flags: u32,
}

/// The part of `union bpf_attr` that attaches a program.
#[repr(C)]
#[derive(Default)]
struct AttachAttributes {
    target_fd: u32,
    program_fd: u32,
    attach_type: u32,
    flags: u32,
}

/// Loads a filter and attaches it to the cgroup at `path`, which keeps it alive.
pub(super) fn attach(path: &Path, rules: &[DeviceRule], nodes: DeviceNodes) -> Result<(), DeviceFilterError> {
    let cgroup = File::open(path).map_err(|source| DeviceFilterError::Open(path.to_path_buf(), source))?;
    let filter = load(&program(rules, nodes)).map_err(DeviceFilterError::Load)?;
    let attributes = AttachAttributes {
        target_fd: cgroup.as_raw_fd().cast_unsigned(),
        program_fd: filter.as_raw_fd().cast_unsigned(),
        attach_type: BPF_CGROUP_DEVICE,
        flags: BPF_F_ALLOW_MULTI,
    };
    let attached = bpf(BPF_PROG_ATTACH, &attributes);
    attached.map(drop).map_err(|source| DeviceFilterError::Attach { path: path.to_path_buf(), source })
}

fn load(code: &[Instruction]) -> io::Result<OwnedFd> {
    let license = c"GPL";
    let attributes = LoadAttributes {
        program_type: BPF_PROG_TYPE_CGROUP_DEVICE,
        instruction_count: u32::try_from(code.len()).unwrap_or(u32::MAX),
        instructions: code.as_ptr() as u64,
        license: license.as_ptr() as u64,
        ..LoadAttributes::default()
    };
    let fd: RawFd = bpf(BPF_PROG_LOAD, &attributes)?;
    // SAFETY: the kernel has just made this descriptor for us, so nothing else owns or closes it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `bpf(2)`. The kernel takes the bytes that the structure lacks of `union bpf_attr` as 0.
fn bpf<T>(command: libc::c_int, attributes: &T) -> io::Result<RawFd> {
    // SAFETY: `attributes` is a live structure of the given size that the kernel only reads. The addresses in it are those
    // of slices that live until the call returns, and the count of instructions is the length of their slice.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    match RawFd::try_from(result) {
        Ok(fd) if fd >= 0 => Ok(fd),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel would, for the instructions that we use.
    fn run(code: &[Instruction], access: u32, is_block: bool, major: u32, minor: u32) -> i64 {
        let kind = if is_block { TYPE_BLOCK } else { TYPE_CHARACTER };
        let context = [(access << ACCESS_SHIFT) | kind.cast_unsigned(), major, minor];
        let (mut registers, mut at) = ([0_i64; 11], 0_usize);
        loop {
            let now = code[at];
            let destination = usize::from(now.registers & 15);
            at += 1;
            match now.code {
                0x61 => registers[destination] = i64::from(context[usize::try_from(now.offset).unwrap() / 4]),
                0xb7 => registers[destination] = i64::from(now.immediate),
                0x54 => registers[destination] &= i64::from(now.immediate.cast_unsigned()),
                0x74 => registers[destination] >>= now.immediate,
                0x55 if registers[destination] != i64::from(now.immediate) => {
                    at += usize::try_from(now.offset).unwrap()
                }
                0x55 => {}
                0x95 => return registers[0],
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    #[test]
    fn a_program_allows_its_list_and_nothing_else() {
        let rule = |is_block, major, minor| DeviceRule { is_block, major, minor };
        let code =
            program(&[rule(false, 1, Some(3)), rule(false, 136, None), rule(true, 7, Some(0))], DeviceNodes::Denied);
        const READ: u32 = 2;
        const READ_AND_WRITE: u32 = 6;
        for (is_block, major, minor, expected) in [
            (false, 1, 3, 1),
            (false, 1, 5, 0),
            (true, 1, 3, 0),
            (false, 136, 0, 1),
            (false, 136, 4_000, 1),
            (false, 137, 0, 0),
            (true, 7, 0, 1),
            (false, 7, 0, 0),
        ] {
            for access in [READ, READ_AND_WRITE] {
                assert_eq!(run(&code, access, is_block, major, minor), expected, "{is_block} {major}:{minor}");
            }
        }
        assert_eq!(run(&code, u32::try_from(ACCESS_MKNOD).unwrap(), false, 1, 3), 0, "making a node");
        assert_eq!(run(&program(&[], DeviceNodes::Denied), READ, false, 1, 3), 0, "an empty list");
    }
}
