//! Makes new bytes of old ones, from a seed.

/// A generator of numbers: the same seed, the same numbers (SplitMix64).
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One below a bound; zero where there is none.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.next() % bound as u64) as usize }
    }
}

/// Words that mean something to a policy.
const WORDS: [&str; 32] = [
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

/// The corpus with a few changes.
pub fn mutant(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(3) {
        change(random, &mut bytes, corpus);
    }
    bytes.truncate(4 << 10);
    bytes
}

fn change(random: &mut Random, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
    let place = random.below(bytes.len() + 1);
    let end = (place + random.below(24)).min(bytes.len());
    match random.below(7) {
        0 => drop(bytes.drain(place..end)),
        1 => {
            let again = bytes[place..end].repeat(1 + random.below(8));
            bytes.splice(place..place, again);
        }
        2 => {
            let other = &corpus[random.below(corpus.len())];
            let from = random.below(other.len() + 1);
            let piece = other[from..(from + random.below(64)).min(other.len())].to_vec();
            bytes.splice(place..end, piece);
        }
        3 => bytes[place..end].iter_mut().for_each(|byte| *byte ^= 1 << (place % 8)),
        4 => replace_number(random, bytes, place),
        5 => drop(bytes.splice(place..end, [random.next() as u8])),
        _ => drop(bytes.splice(place..place, WORDS[random.below(WORDS.len())].bytes())),
    }
}

/// Another number in the place of the first one from here on.
fn replace_number(random: &mut Random, bytes: &mut Vec<u8>, from: usize) {
    let digit = |byte: &u8| byte.is_ascii_digit();
    let Some(begin) = bytes[from..].iter().position(digit).map(|place| from + place) else { return };
    let length = bytes[begin..].iter().take_while(|byte| digit(byte)).count();
    let number = random.next() >> random.below(64);
    bytes.splice(begin..begin + length, number.to_string().into_bytes());
}
