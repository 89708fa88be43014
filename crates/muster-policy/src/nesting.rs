//! How deep the parts of a file lie inside each other, and how long its names are, found from its words alone.
//!
//! Who parses, compiles or merely drops a deep expression follows it with its own stack, and a stack that is used
//! up ends the whole process. So the depth is counted before anyone builds a tree. Brackets and blocks are not all: each of
//! `x[0][0]`, `- - x`, `a + b + c`, `lambda: lambda: x` and `elif` is one level further down, too.

use starlark_syntax::codemap::CodeMap;
use starlark_syntax::dialect::Dialect;
use starlark_syntax::lexer::{Lexer, Token};

/// Names are no longer than this: the interpreter compares one that it does not know with all that it does.
const NAME_BYTES: usize = 200;

/// What is wrong with the words of a file, and in which line.
pub fn complaint(source: &str, most: usize) -> Option<(usize, String)> {
    let map = CodeMap::new(String::new(), source.to_string());
    let mut depth = Depth { levels: vec![Level::default()], ..Depth::default() };
    // A word that is none ends the file for the parser, too.
    let mut words = Lexer::new(source, &Dialect::Standard, map).map_while(Result::ok);
    let (begin, what) = words.find_map(|(begin, word, _)| {
        depth.take(&word);
        let long = matches!(&word, Token::Identifier(name) if name.len() > NAME_BYTES);
        let what = match (long, depth.total() > most) {
            (true, _) => format!("a name has more than {NAME_BYTES} letters"),
            (_, true) => format!("parts are nested more than {most} deep"),
            _ => return None,
        };
        Some((begin, what))
    })?;
    let before = source.as_bytes().get(..begin)?;
    Some((before.iter().filter(|byte| **byte == b'\n').count() + 1, what))
}

/// How deep the next word lies.
#[derive(Default)]
struct Depth {
    /// The brackets that are open, the outermost first; at the beginning the statement itself.
    levels: Vec<Level>,
    /// The blocks that are open, each with its row of `elif`.
    blocks: Vec<usize>,
    /// The row of `elif` at the top.
    elifs: usize,
    /// Whether the word before ended an operand: then a sign stands between two.
    after_operand: bool,
}

/// What lies inside each other between two brackets.
#[derive(Default)]
struct Level {
    /// Clauses and functions, which commas do not end.
    clauses: usize,
    /// Operators between two operands: a row of them leans to one side.
    between: usize,
    /// Operators before the operand.
    before: usize,
    /// Calls, items and attributes after it.
    after: usize,
}

impl Depth {
    fn total(&self) -> usize {
        let level = |level: &Level| 1 + level.clauses + level.between + level.before + level.after;
        let blocks: usize = self.blocks.iter().map(|elifs| 1 + elifs).sum();
        self.levels.iter().map(level).sum::<usize>() + blocks + self.elifs
    }

    fn take(&mut self, word: &Token) {
        use Token::*;
        let operand_before = std::mem::take(&mut self.after_operand);
        match word {
            OpeningRound | OpeningSquare | OpeningCurly => {
                self.level().after += 1;
                self.levels.push(Level::default());
            }
            ClosingRound | ClosingSquare | ClosingCurly => {
                if self.levels.len() > 1 {
                    self.levels.pop();
                }
                self.after_operand = true;
            }
            Indent => self.blocks.push(0),
            Dedent => drop(self.blocks.pop()),
            Newline | Semicolon => *self.level() = Level::default(),
            Comma => *self.level() = Level { clauses: self.level().clauses, ..Level::default() },
            Elif => *self.elifs() += 1,
            // A condition of its own begins a new row; one inside an expression stands between two operands.
            If if !operand_before => *self.elifs() = 0,
            Lambda | For => self.level().clauses += 1,
            Dot => self.level().after += 1,
            Not | Tilde => self.level().before += 1,
            Minus | Plus if !operand_before => self.level().before += 1,
            Identifier(_) | String(_) | Bytes(_) | Int(_) | Float(_) => self.after_operand = true,
            Comment(_) | Tabs => self.after_operand = operand_before,
            Colon | Equal | Def | Return | Load | Pass | Break | Continue | Reserved => {}
            _ => {
                let level = self.level();
                *level = Level { clauses: level.clauses, between: level.between + 1, ..Level::default() };
            }
        }
    }

    fn level(&mut self) -> &mut Level {
        if self.levels.is_empty() {
            self.levels.push(Level::default());
        }
        let last = self.levels.len() - 1;
        &mut self.levels[last]
    }

    fn elifs(&mut self) -> &mut usize {
        self.blocks.last_mut().unwrap_or(&mut self.elifs)
    }
}

#[cfg(test)]
mod tests {
    fn too_deep(source: &str, most: usize) -> Option<usize> {
        super::complaint(source, most).map(|(line, _)| line)
    }

    #[test]
    fn each_way_down_is_counted() {
        let rows: [fn(usize) -> String; 9] = [
            |n| format!("x = {}1{}", "[".repeat(n), "]".repeat(n)),
            |n| format!("x = y{}", "[0]".repeat(n)),
            |n| format!("x = y{}", ".z".repeat(n)),
            |n| format!("x = {}1", "- ".repeat(n)),
            |n| format!("x = ({}1)", "not \\\n".repeat(n)),
            |n| format!("x = 1{}", " + 1".repeat(n)),
            |n| format!("x = ({}1)", "lambda a, b: ".repeat(n)),
            |n| format!("x = [1{}]", " for i, j in k".repeat(n)),
            |n| format!("if a:\n  pass\n{}", "elif a:\n  pass\n".repeat(n)),
        ];
        for row in rows {
            assert_eq!(too_deep(&row(40), 100), None, "{}", row(40));
            assert!(too_deep(&row(101), 100).is_some(), "{}", row(101));
        }
        let blocks = |n: usize| (0..n).map(|i| format!("{}if a:\n", " ".repeat(i))).collect::<String>();
        assert_eq!(too_deep(&format!("{}{}x", blocks(40), " ".repeat(40)), 100), None);
        assert_eq!(too_deep(&format!("{}{}x", blocks(101), " ".repeat(101)), 100), Some(101));
    }

    #[test]
    fn a_name_has_an_end() {
        assert_eq!(super::complaint(&format!("x = 1\n{} = 2", "a".repeat(200)), 100), None);
        let (line, what) = super::complaint(&format!("x = 1\n{} = 2", "a".repeat(201)), 100).unwrap();
        assert_eq!((line, what.as_str()), (2, "a name has more than 200 letters"));
    }

    #[test]
    fn what_stands_side_by_side_is_not_deep() {
        let wide = [
            format!("x = [{}]", "f(1)[2].y + 3, ".repeat(1_000)),
            format!("x = 'a{}'  # {}", "(".repeat(1_000), "[".repeat(1_000)),
            "x = (a + 1) * -b\n".repeat(1_000),
            "if a:\n  x = 1 if b else 2\nelif b:\n  pass\n".repeat(1_000),
            format!("def f():\n{}", "    for i in j:\n        if k:\n            l()\n".repeat(1_000)),
            format!("x = a{}", " and b.c(d)[e] == -f".repeat(40)),
        ];
        wide.iter().for_each(|source| assert_eq!(too_deep(source, 100), None, "{source}"));
    }
}
