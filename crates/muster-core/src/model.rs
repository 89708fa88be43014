//! Names of GPU models: whether what was asked for is what a device calls itself.
//!
//! Drivers write `NVIDIA GeForce RTX 5070 Ti`, people write `RTX_5070ti`. A name is cut into words, the
//! maker's words are dropped, and a wish matches a device when it equals a run of whole words. So `A10` never
//! matches `A100`, and `RTX 5070` does not match the Ti.

/// Words that say who made it and nothing about the model.
const MAKERS: [&str; 6] = ["nvidia", "geforce", "tesla", "amd", "instinct", "intel"];

/// Words that make another model of the one before them.
const VARIANTS: [&str; 6] = ["ti", "super", "mig", "max", "nvl", "x"];

/// The canonical spelling of a model or a wish: lower-case words joined by `-`, without the maker.
pub fn canonical(name: &str) -> String {
    words(name).join("-")
}

/// Whether a device that calls itself `device` is what `wish` asks for.
pub fn matches(wish: &str, device: &str) -> bool {
    let wish = words(wish).concat();
    let device = words(device);
    !wish.is_empty() && (0..device.len()).any(|start| run_matches(&wish, &device[start..]))
}

fn run_matches(wish: &str, device: &[String]) -> bool {
    let mut joined = String::new();
    for (place, word) in device.iter().enumerate() {
        joined.push_str(word);
        if joined == wish {
            let next = device.get(place + 1);
            return next.is_none_or(|next| !VARIANTS.contains(&next.as_str()));
        }
    }
    false
}

fn words(name: &str) -> Vec<String> {
    name.split(|c: char| !c.is_ascii_alphanumeric())
        .map(str::to_ascii_lowercase)
        .filter(|word| !word.is_empty() && !MAKERS.contains(&word.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_match_what_drivers_write() {
        let cases = [
            ("RTX_5070ti", "NVIDIA GeForce RTX 5070 Ti", true),
            ("RTX 5070", "NVIDIA GeForce RTX 5070 Ti", false),
            ("A10", "NVIDIA A100-SXM4-80GB", false),
            ("A100", "NVIDIA A100-SXM4-80GB", true),
            ("A100-80GB", "NVIDIA A100-SXM4-80GB", false),
            ("H100", "H100-MIG", false),
            ("H100", "NVIDIA H100 80GB HBM3", true),
            ("h200", "NVIDIA H200", true),
            ("", "NVIDIA H200", false),
            ("nvidia", "NVIDIA H200", false),
        ];
        for (wish, device, expected) in cases {
            assert_eq!(matches(wish, device), expected, "{wish} / {device}");
        }
    }
}
