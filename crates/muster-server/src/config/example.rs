//! A configuration file with every key of some sections commented out: its default and its description.

use super::keys::{KEYS, Key};
use super::value::ValueKind;

/// The longest line of a description.
const WIDTH: usize = 100;

/// The keys of these sections as YAML. Every line is a comment, so the file sets nothing.
pub fn commented_keys(sections: &[&str]) -> String {
    let mut text = String::new();
    for section in sections {
        text.push_str(&format!("#{section}:\n"));
        let keys = KEYS.iter().filter_map(|key| Some((key, key.name.strip_prefix(section)?.strip_prefix('.')?)));
        for (key, name) in keys {
            wrapped(key.description).iter().for_each(|line| text.push_str(&format!("  # {line}\n")));
            text.push_str(&format!("#  {name}: {}\n", default_text(key)));
        }
        text.push('\n');
    }
    text
}

fn default_text(key: &Key) -> String {
    match (&key.kind, key.default) {
        (ValueKind::List, list) => format!("[{list}]"),
        (_, "") => "\"\"".to_string(),
        (_, text) if text.starts_with('0') && text.len() > 1 => format!("\"{text}\""),
        (_, text) => text.to_string(),
    }
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().filter(|line| line.is_empty() || line.len() + word.len() < WIDTH);
        match last {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => line.push_str(&format!(" {word}")),
            None => lines.push(word.to_string()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, RawConfig};

    fn loaded(text: &str, name: &str) -> Config {
        let path = std::env::temp_dir().join(format!("muster-example-{name}-{}.yaml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let config = Config::load(RawConfig::default(), [], Some(&path));
        std::fs::remove_file(&path).unwrap();
        config.unwrap()
    }

    #[test]
    fn the_comments_are_the_defaults_and_set_nothing() {
        let text = commented_keys(&["agent", "log"]);
        assert!(text.lines().all(|line| line.is_empty() || line.trim_start().starts_with('#')), "{text}");
        assert!(text.contains("#  job_user: muster-job\n") && text.contains("  # account that runs jobs"), "{text}");
        let uncommented: String = text
            .lines()
            .map(|line| line.strip_prefix('#').unwrap_or(line))
            .fold(String::new(), |text, line| text + line + "\n");
        let (set, unset) = (loaded(&uncommented, "set"), loaded("", "unset"));
        assert_eq!((&set.agent, &set.log), (&unset.agent, &unset.log));
        let commented = loaded(&format!("agent:\n{text}log:\n{text}"), "commented"); // Hundreds of comment lines in a row.
        assert_eq!((&commented.agent, &commented.log), (&unset.agent, &unset.log));
    }
}
