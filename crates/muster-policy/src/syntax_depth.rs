//! The nesting depth of a source and the length of its identifiers, computed from its tokens alone.
//!
//! Parsing, compiling and even dropping a deep expression recurses on the stack, and a stack overflow kills the whole
//! process. The depth is therefore counted before a syntax tree is built. Beside brackets and blocks, each of
//! `x[0][0]`, `- - x`, `a + b + c`, `lambda: lambda: x` and `elif` adds a level.

use starlark_syntax::codemap::CodeMap;
use starlark_syntax::dialect::Dialect;
use starlark_syntax::lexer::{Lexer, Token};

/// The longest identifier: for an unknown one the interpreter computes the edit distance to every known one.
const IDENTIFIER_BYTES_MAX: usize = 200;

/// The first line that exceeds a limit, with a message.
pub fn source_problem(source: &str, depth_max: usize) -> Option<(usize, String)> {
    let map = CodeMap::new(String::new(), source.to_string());
    let mut depth = DepthCounter { levels: vec![BracketLevel::default()], ..DepthCounter::default() };
    // The parser, too, stops at the first invalid token.
    let mut tokens = Lexer::new(source, &Dialect::Standard, map).map_while(Result::ok);
    let (begin, message) = tokens.find_map(|(begin, token, _)| {
        depth.push_token(&token);
        let is_long = matches!(&token, Token::Identifier(name) if name.len() > IDENTIFIER_BYTES_MAX);
        let message = match (is_long, depth.total() > depth_max) {
            (true, _) => format!("an identifier is longer than {IDENTIFIER_BYTES_MAX} bytes"),
            (_, true) => format!("the syntax is nested more than {depth_max} levels deep"),
            _ => return None,
        };
        Some((begin, message))
    })?;
    let before = source.as_bytes().get(..begin)?;
    Some((before.iter().filter(|byte| **byte == b'\n').count() + 1, message))
}

/// The depth of the next token.
#[derive(Default)]
struct DepthCounter {
    /// The open brackets, outermost first, after the statement itself.
    levels: Vec<BracketLevel>,
    /// The open blocks, each with its number of consecutive `elif`.
    blocks: Vec<usize>,
    /// Consecutive `elif` at the top level.
    elifs: usize,
    /// True if the previous token ended an operand: a sign is then an infix operator.
    after_operand: bool,
}

/// Nesting between one pair of brackets.
#[derive(Default)]
struct BracketLevel {
    /// Comprehension clauses and lambdas. A comma does not end them.
    clauses: usize,
    /// A chain of infix operators is a tree that leans to one side.
    infix_operators: usize,
    prefix_operators: usize,
    /// Calls, indexing and attributes.
    postfix_operations: usize,
}

impl DepthCounter {
    fn total(&self) -> usize {
        let level = |level: &BracketLevel| {
            1 + level.clauses + level.infix_operators + level.prefix_operators + level.postfix_operations
        };
        let blocks: usize = self.blocks.iter().map(|elifs| 1 + elifs).sum();
        self.levels.iter().map(level).sum::<usize>() + blocks + self.elifs
    }

    fn push_token(&mut self, token: &Token) {
        use Token::*;
        let operand_before = std::mem::take(&mut self.after_operand);
        match token {
            OpeningRound | OpeningSquare | OpeningCurly => {
                self.current_level().postfix_operations += 1;
                self.levels.push(BracketLevel::default());
            }
            ClosingRound | ClosingSquare | ClosingCurly => {
                if self.levels.len() > 1 {
                    self.levels.pop();
                }
                self.after_operand = true;
            }
            Indent => self.blocks.push(0),
            Dedent => drop(self.blocks.pop()),
            Newline | Semicolon => *self.current_level() = BracketLevel::default(),
            Comma => {
                *self.current_level() =
                    BracketLevel { clauses: self.current_level().clauses, ..BracketLevel::default() }
            }
            Elif => *self.current_elifs() += 1,
            // An `if` statement starts a new chain of `elif`; after an operand, `if` is an infix operator.
            If if !operand_before => *self.current_elifs() = 0,
            Lambda | For => self.current_level().clauses += 1,
            Dot => self.current_level().postfix_operations += 1,
            Not | Tilde => self.current_level().prefix_operators += 1,
            Minus | Plus if !operand_before => self.current_level().prefix_operators += 1,
            Identifier(_) | String(_) | Bytes(_) | Int(_) | Float(_) => self.after_operand = true,
            Comment(_) | Tabs => self.after_operand = operand_before,
            Colon | Equal | Def | Return | Load | Pass | Break | Continue | Reserved => {}
            _ => {
                let level = self.current_level();
                *level = BracketLevel {
                    clauses: level.clauses,
                    infix_operators: level.infix_operators + 1,
                    ..BracketLevel::default()
                };
            }
        }
    }

    fn current_level(&mut self) -> &mut BracketLevel {
        if self.levels.is_empty() {
            self.levels.push(BracketLevel::default());
        }
        let last = self.levels.len() - 1;
        &mut self.levels[last]
    }

    fn current_elifs(&mut self) -> &mut usize {
        self.blocks.last_mut().unwrap_or(&mut self.elifs)
    }
}

#[cfg(test)]
mod tests {
    /// The first line deeper than `depth_max`.
    fn too_deep(source: &str, depth_max: usize) -> Option<usize> {
        super::source_problem(source, depth_max).map(|(line, _)| line)
    }

    #[test]
    fn every_nesting_construct_adds_depth() {
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
    fn identifiers_over_the_length_limit_are_rejected() {
        assert_eq!(super::source_problem(&format!("x = 1\n{} = 2", "a".repeat(200)), 100), None);
        let (line, message) = super::source_problem(&format!("x = 1\n{} = 2", "a".repeat(201)), 100).unwrap();
        assert_eq!((line, message.as_str()), (2, "an identifier is longer than 200 bytes"));
    }

    #[test]
    fn wide_sources_do_not_count_as_deep() {
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
