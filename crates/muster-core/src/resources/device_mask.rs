//! Sets of devices of a node as bit masks.

/// The bit mask of device indexes. No node has more than 64 devices.
pub fn mask(gpus: &[u8]) -> u64 {
    gpus.iter().filter(|gpu| **gpu < 64).fold(0, |mask, gpu| mask | 1 << gpu)
}

/// The indexes of the set bits.
pub fn bits(mask: u64) -> Vec<u8> {
    (0..64).filter(|index| mask & (1 << index) != 0).collect()
}
