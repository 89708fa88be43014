//! Mutates policy sources, from a seed.

/// A deterministic random number generator (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below the bound; 0 if the bound is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.next() % bound as u64) as usize }
    }
}

/// Tokens that are meaningful in a policy.
const TOKENS: [&str; 32] = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ":",
    ",",
    "=",
    "\n",
    "\n    ",
    " for x in ",
    " if ",
    " else ",
    "lambda x: ",
    "def f(x):\n    return ",
    "not ",
    "-",
    "*",
    "**",
    "\"",
    "'''",
    "\\",
    "0x",
    "1e9",
    "load(\"policy.gsky\", \"x\")",
    "gpu_ops.",
    "gpu_pool(",
    "%s",
    ".format(",
    "\u{0}",
    "\u{1F63F}",
];

/// A source of the corpus with one to three mutations.
pub fn mutated_source(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(3) {
        mutate(random, &mut bytes, corpus);
    }
    bytes.truncate(4 << 10);
    bytes
}

fn mutate(random: &mut Random, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let start = random.below(bytes.len() + 1);
    let end = (start + random.below(24)).min(bytes.len());
    match random.below(7) {
        0 => drop(bytes.drain(start..end)),
        1 => {
            let repeated = bytes[start..end].repeat(1 + random.below(8));
            bytes.splice(start..start, repeated);
        }
        2 => {
            let other = &corpus[random.below(corpus.len())];
            let from = random.below(other.len() + 1);
            let piece = other[from..(from + random.below(64)).min(other.len())].to_vec();
            bytes.splice(start..end, piece);
        }
        3 => bytes[start..end].iter_mut().for_each(|byte| *byte ^= 1 << (start % 8)),
        4 => replace_number(random, bytes, start),
        5 => drop(bytes.splice(start..end, [random.next() as u8])),
        _ => drop(bytes.splice(start..start, TOKENS[random.below(TOKENS.len())].bytes())),
    }
}

/// Replace the first number at or after an offset.
fn replace_number(random: &mut Random, bytes: &mut Vec<u8>, from: usize) {
    let digit = |byte: &u8| byte.is_ascii_digit();
    let Some(begin) = bytes[from..].iter().position(digit).map(|offset| from + offset) else { return };
    let length = bytes[begin..].iter().take_while(|byte| digit(byte)).count();
    let number = random.next() >> random.below(64);
    bytes.splice(begin..begin + length, number.to_string().into_bytes());
}
