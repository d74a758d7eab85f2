//! Tokens to syntax tree, by recursive descent over cel-go's grammar; macros expand as they are met.
//!
//! Depth is bounded: nesting and operator chains share one limit, so no later pass recurses deeper than a small multiple of it.
//! Messages follow cel-go where its generated parser's are predictable; parsing stops at the first syntax fault.

mod macros;

use crate::{
    ast::{Call, Element, Entry, Expr, Kind, Literal, Select, Struct, StructField, op},
    error::CompileErrors,
    lexer::{self, Token, TokenKind},
};

const MAX_DEPTH: u32 = 250;
const MAX_CHARS: usize = 100_000;
/// Bounds what macros that repeat their argument can build.
const MAX_NODES: usize = 200_000;
/// Bounds the height of the tree, which every later pass recurses over.
const MAX_HEIGHT: u16 = 350;
const TOO_LARGE: &str = "expression is too large after expanding its macros";

const EXPECTED_OPERAND: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, \
                                BYTES, IDENTIFIER}";

/// Binary operators with their functions, loosest first.
const BINARY: &[(&str, &str, u8)] = &[
    ("||", op::OR, 0),
    ("&&", op::AND, AND_PRECEDENCE),
    ("<=", op::LE, 2),
    (">=", op::GE, 2),
    ("==", op::EQ, 2),
    ("!=", op::NE, 2),
    ("<", op::LT, 2),
    (">", op::GT, 2),
    ("in", op::IN, 2),
    ("+", op::ADD, 3),
    ("-", op::SUB, 3),
    ("*", op::MUL, 4),
    ("/", op::DIV, 4),
    ("%", op::MOD, 4),
];
const AND_PRECEDENCE: u8 = 1;

/// Words that are CEL syntax: they name no variable, and a field of such a name is written `__name__`.
pub(crate) const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
    "namespace",
    "null",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// Whether CEL takes it for the name of a variable.
pub fn is_identifier(name: &str) -> bool {
    let sound = |b: u8| b == b'_' || b.is_ascii_alphanumeric();
    name.bytes().all(sound)
        && name.bytes().next().is_some_and(|b| !b.is_ascii_digit())
        && !RESERVED.contains(&name)
}

/// A tree and the position of each of its nodes, in characters.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) root: Expr,
    pub(crate) positions: Vec<u32>,
}

/// Parses an expression.
pub(crate) fn parse(source: &str, bindings: bool) -> Result<Parsed, CompileErrors> {
    let mut errors = CompileErrors::new(source);
    let size = source.chars().count();
    if size > MAX_CHARS {
        errors.report(
            None,
            format!("expression code point size exceeds limit: size: {size}, limit {MAX_CHARS}"),
        );
        return Err(errors);
    }
    let (tokens, faults) = lexer::tokens(source);
    for (offset, text) in faults {
        errors.report(
            Some(offset),
            format!("Syntax error: token recognition error at: '{text}'"),
        );
    }
    let mut parser = Parser {
        source,
        tokens,
        at: 0,
        positions: Vec::new(),
        heights: Vec::new(),
        tall: false,
        errors,
        depth: 0,
        bindings,
    };
    match parser.whole() {
        Ok(root) => {
            if parser.positions.len() > MAX_NODES {
                parser.errors.report(None, TOO_LARGE.to_string());
            } else if parser.tall {
                parser.errors.report(None, too_deep());
            }
            parser.errors.into_result(Parsed {
                root,
                positions: parser.positions,
            })
        }
        Err(Stop) => Err(parser.errors),
    }
}

/// A syntax fault was reported; nothing after it is parsed.
struct Stop;

type Parse<T> = Result<T, Stop>;

struct Parser<'s> {
    source: &'s str,
    tokens: Vec<Token>,
    at: usize,
    positions: Vec<u32>,
    /// How many levels lie below each node.
    heights: Vec<u16>,
    /// A node was made that is higher than the tree may be.
    tall: bool,
    errors: CompileErrors,
    depth: u32,
    /// `cel.bind` is a macro.
    bindings: bool,
}

impl<'s> Parser<'s> {
    fn whole(&mut self) -> Parse<Expr> {
        let root = self.expr()?;
        if self.peek() != TokenKind::End {
            let last = self
                .tokens
                .get(self.at + 1)
                .is_some_and(|token| token.kind == TokenKind::End);
            let what = if last { "extraneous" } else { "mismatched" };
            return Err(self.syntax(&format!("{what} input '{}' expecting <EOF>", self.text())));
        }
        Ok(root)
    }

    fn peek(&self) -> TokenKind {
        self.tokens[self.at].kind
    }

    fn text(&self) -> &'s str {
        match self.peek() {
            TokenKind::End => "<EOF>",
            _ => &self.source[self.tokens[self.at].bytes.clone()],
        }
    }

    fn offset(&self) -> u32 {
        self.tokens[self.at].offset
    }

    fn is(&self, punct: &str) -> bool {
        matches!(self.peek(), TokenKind::Punct(found) if found == punct)
    }

    fn is_at(&self, ahead: usize, punct: &str) -> bool {
        self.tokens
            .get(self.at + ahead)
            .is_some_and(|token| matches!(token.kind, TokenKind::Punct(found) if found == punct))
    }

    /// Takes the token if it is this one, and gives its position.
    fn eat(&mut self, punct: &str) -> Option<u32> {
        let offset = self.offset();
        self.is(punct).then(|| {
            self.at += 1;
            offset
        })
    }

    fn expect(&mut self, punct: &str) -> Parse<u32> {
        if let Some(offset) = self.eat(punct) {
            return Ok(offset);
        }
        let text = self.text();
        Err(match self.peek() {
            TokenKind::End => self.syntax(&format!("missing '{punct}' at '<EOF>'")),
            _ => self.syntax(&format!("mismatched input '{text}' expecting '{punct}'")),
        })
    }

    fn syntax(&mut self, message: &str) -> Stop {
        let offset = self.offset();
        self.errors
            .report(Some(offset), format!("Syntax error: {message}"));
        Stop
    }

    fn fault(&mut self, offset: u32, message: String) -> Expr {
        self.errors.report(Some(offset), message);
        self.node(offset, Kind::Fault)
    }

    fn node(&mut self, offset: u32, kind: Kind) -> Expr {
        let id = self.positions.len() as u32;
        self.positions.push(offset);
        let mut height = 0;
        kind.each_child(&mut |child| height = height.max(self.heights[child.id as usize]));
        // Operator chains and macros grow the tree upwards, where the depth of the parser does not see it.
        self.tall |= height > MAX_HEIGHT;
        self.heights.push(height.saturating_add(1));
        Expr { id, kind }
    }

    fn deeper(&mut self) -> Parse<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH || self.tall {
            self.errors.report(None, too_deep());
            return Err(Stop);
        }
        if self.positions.len() > MAX_NODES {
            self.errors.report(None, TOO_LARGE.to_string());
            return Err(Stop);
        }
        Ok(())
    }

    fn expr(&mut self) -> Parse<Expr> {
        self.deeper()?;
        let mut expr = self.binary(0)?;
        if let Some(offset) = self.eat("?") {
            let yes = self.binary(0)?;
            self.expect(":")?;
            let no = self.expr()?;
            expr = self.call(offset, op::COND, vec![expr, yes, no]);
        }
        self.depth -= 1;
        Ok(expr)
    }

    /// Binary operators of at least this precedence: one function for all of them keeps the stack of nested expressions small.
    fn binary(&mut self, least: u8) -> Parse<Expr> {
        let mut left = self.unary()?;
        let depth = self.depth;
        while let Some((punct, function, precedence)) =
            self.operator().filter(|(_, _, precedence)| *precedence >= least)
        {
            let offset = self.offset();
            self.at += 1;
            if precedence <= AND_PRECEDENCE {
                // A chain of one logical operator becomes one call with all its terms.
                let mut terms = vec![left, self.binary(precedence + 1)?];
                while self.eat(punct).is_some() {
                    terms.push(self.binary(precedence + 1)?);
                }
                left = self.call(offset, function, terms);
            } else {
                self.deeper()?;
                let right = self.binary(precedence + 1)?;
                left = self.call(offset, function, vec![left, right]);
            }
        }
        self.depth = depth;
        Ok(left)
    }

    fn operator(&self) -> Option<(&'static str, &'static str, u8)> {
        let TokenKind::Punct(found) = self.peek() else {
            return None;
        };
        BINARY.iter().find(|(punct, _, _)| *punct == found).copied()
    }

    fn unary(&mut self) -> Parse<Expr> {
        for (punct, function) in [("!", op::NOT), ("-", op::NEG)] {
            if !self.is(punct) {
                continue;
            }
            let number = matches!(self.tokens[self.at + 1].kind, TokenKind::Int | TokenKind::Float);
            if punct == "-" && number {
                break;
            }
            let offset = self.offset();
            let mut count = 0;
            while self.is(punct) && !(punct == "-" && count > 0 && self.negative_literal()) {
                self.at += 1;
                count += 1;
            }
            let operand = self.member()?;
            return Ok(if count % 2 == 0 {
                operand
            } else {
                self.call(offset, function, vec![operand])
            });
        }
        self.member()
    }

    /// Whether a minus starts a literal: a number follows at once.
    fn negative_literal(&self) -> bool {
        self.tokens
            .get(self.at + 1)
            .is_some_and(|token| matches!(token.kind, TokenKind::Int | TokenKind::Float))
    }

    fn member(&mut self) -> Parse<Expr> {
        let mut expr = self.primary()?;
        let depth = self.depth;
        loop {
            if let Some(offset) = self.eat(".") {
                self.deeper()?;
                expr = self.selected(expr, offset)?;
            } else if let Some(offset) = self.eat("[") {
                self.deeper()?;
                let function = if self.eat("?").is_some() {
                    op::OPT_INDEX
                } else {
                    op::INDEX
                };
                let index = self.expr()?;
                self.expect("]")?;
                expr = self.call(offset, function, vec![expr, index]);
            } else {
                self.depth = depth;
                return Ok(expr);
            }
        }
    }

    /// The selector after a dot: a field, an optional field or a method.
    fn selected(&mut self, operand: Expr, dot: u32) -> Parse<Expr> {
        let optional = self.eat("?").is_some();
        let name_at = self.offset();
        let name: Box<str> = match self.peek() {
            TokenKind::Ident => self.text().into(),
            TokenKind::Escaped => self.text().trim_matches('`').into(),
            _ => {
                let text = self.text();
                return Err(match self.peek() {
                    TokenKind::End => self.syntax("no viable alternative at input '.'"),
                    _ => self.syntax(&format!("mismatched input '{text}' expecting IDENTIFIER")),
                });
            }
        };
        let escaped = self.peek() == TokenKind::Escaped;
        self.at += 1;
        if optional {
            let field = self.node(name_at, Kind::Literal(Literal::String(name)));
            return Ok(self.call(dot, op::OPT_SELECT, vec![operand, field]));
        }
        if !escaped && let Some(open) = self.eat("(") {
            let args = self.args()?;
            return self.method(open, operand, name, args);
        }
        Ok(self.node(
            dot,
            Kind::Select(Select {
                operand: Box::new(operand),
                field: name,
                test: false,
            }),
        ))
    }

    fn args(&mut self) -> Parse<Vec<Expr>> {
        let mut args = Vec::new();
        if self.eat(")").is_some() {
            return Ok(args);
        }
        loop {
            args.push(self.expr()?);
            if self.eat(",").is_none() {
                break;
            }
        }
        self.expect(")")?;
        Ok(args)
    }

    fn primary(&mut self) -> Parse<Expr> {
        let offset = self.offset();
        if self.eat("(").is_some() {
            let expr = self.expr()?;
            self.expect(")")?;
            return Ok(expr);
        }
        if self.eat("[").is_some() {
            return self.list(offset);
        }
        if self.eat("{").is_some() {
            return self.map(offset);
        }
        if self.is(".") || self.peek() == TokenKind::Ident {
            return self.name(offset);
        }
        self.literal(offset)
    }

    fn list(&mut self, offset: u32) -> Parse<Expr> {
        let mut elements = Vec::new();
        while !self.is("]") {
            let optional = self.eat("?").is_some();
            elements.push(Element {
                value: self.expr()?,
                optional,
            });
            if self.eat(",").is_none() {
                break;
            }
        }
        self.expect("]")?;
        Ok(self.node(offset, Kind::List(elements)))
    }

    fn map(&mut self, offset: u32) -> Parse<Expr> {
        let mut entries = Vec::new();
        while !self.is("}") {
            let optional = self.eat("?").is_some();
            let key = self.expr()?;
            self.expect(":")?;
            entries.push(Entry {
                key,
                value: self.expr()?,
                optional,
            });
            if self.eat(",").is_none() {
                break;
            }
        }
        self.expect("}")?;
        Ok(self.node(offset, Kind::Map(entries)))
    }

    /// An identifier, a global call or a message literal.
    fn name(&mut self, offset: u32) -> Parse<Expr> {
        let dot = if self.eat(".").is_some() { "." } else { "" };
        if self.peek() != TokenKind::Ident {
            let text = self.text();
            return Err(self.syntax(&format!("mismatched input '{text}' expecting IDENTIFIER")));
        }
        if let Some(names) = self.message_name() {
            let name = format!("{dot}{names}");
            return self.message(name);
        }
        let id_offset = self.offset();
        let id = self.text();
        self.at += 1;
        let name = format!("{dot}{id}");
        if let Some(open) = self.eat("(") {
            let args = self.args()?;
            if RESERVED.contains(&id) {
                return Ok(self.fault(offset, format!("reserved identifier: {id}")));
            }
            return self.global(open, name, args);
        }
        if RESERVED.contains(&id) {
            return Ok(self.fault(offset, format!("reserved identifier: {id}")));
        }
        Ok(self.node(id_offset, Kind::Ident(name.into())))
    }

    /// `a.b.C`, if a brace follows it.
    fn message_name(&self) -> Option<String> {
        let mut ahead = 0;
        let mut name = String::new();
        loop {
            let token = self.tokens.get(self.at + ahead)?;
            if token.kind != TokenKind::Ident {
                return None;
            }
            name.push_str(&self.source[token.bytes.clone()]);
            if self.is_at(ahead + 1, "{") {
                return Some(name);
            }
            if !self.is_at(ahead + 1, ".") {
                return None;
            }
            name.push('.');
            ahead += 2;
        }
    }

    fn message(&mut self, name: String) -> Parse<Expr> {
        while !self.is("{") {
            self.at += 1;
        }
        let offset = self.expect("{")?;
        let mut fields = Vec::new();
        while !self.is("}") {
            let optional = self.eat("?").is_some();
            let field: Box<str> = match self.peek() {
                TokenKind::Ident => self.text().into(),
                TokenKind::Escaped => self.text().trim_matches('`').into(),
                _ => {
                    let text = self.text();
                    return Err(self.syntax(&format!(
                        "mismatched input '{text}' expecting {{'}}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}}"
                    )));
                }
            };
            self.at += 1;
            let colon = self.expect(":")?;
            let id = self.node(colon, Kind::Fault).id;
            fields.push(StructField {
                id,
                name: field,
                value: self.expr()?,
                optional,
            });
            if self.eat(",").is_none() {
                break;
            }
        }
        self.expect("}")?;
        Ok(self.node(
            offset,
            Kind::Struct(Struct {
                name: name.into(),
                fields,
            }),
        ))
    }

    fn literal(&mut self, offset: u32) -> Parse<Expr> {
        let sign = if self.is("-") && self.negative_literal() {
            self.at += 1;
            "-"
        } else {
            ""
        };
        let text = self.text();
        let kind = self.peek();
        let literal = match kind {
            TokenKind::Int => int(sign, text)
                .map(Literal::Int)
                .ok_or("invalid int literal".to_string()),
            TokenKind::Uint => uint(text)
                .map(Literal::Uint)
                .ok_or("invalid uint literal".to_string()),
            TokenKind::Float => float(sign, text)
                .map(Literal::Double)
                .ok_or("invalid double literal".to_string()),
            TokenKind::String => lexer::unquote(text, false)
                .and_then(|text| String::from_utf8(text).map_err(|_| "unable to unescape string"))
                .map(|text| Literal::String(text.into()))
                .map_err(str::to_string),
            TokenKind::Bytes => lexer::unquote(text, true)
                .map(|bytes| Literal::Bytes(bytes.into()))
                .map_err(str::to_string),
            TokenKind::True => Ok(Literal::Bool(true)),
            TokenKind::False => Ok(Literal::Bool(false)),
            TokenKind::Null => Ok(Literal::Null),
            _ => return Err(self.syntax(&format!("mismatched input '{text}' expecting {EXPECTED_OPERAND}"))),
        };
        self.at += 1;
        Ok(match literal {
            Ok(literal) => self.node(offset, Kind::Literal(literal)),
            Err(message) => self.fault(offset, message),
        })
    }

    fn call(&mut self, offset: u32, function: &str, args: Vec<Expr>) -> Expr {
        self.node(
            offset,
            Kind::Call(Call {
                target: None,
                function: function.into(),
                args,
            }),
        )
    }

    fn member_call(&mut self, offset: u32, target: Expr, function: &str, args: Vec<Expr>) -> Expr {
        self.node(
            offset,
            Kind::Call(Call {
                target: Some(Box::new(target)),
                function: function.into(),
                args,
            }),
        )
    }
}

fn too_deep() -> String {
    format!("expression recursion limit exceeded: {MAX_DEPTH}")
}

fn int(sign: &str, text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(&format!("{sign}{hex}"), 16).ok(),
        None => format!("{sign}{text}").parse().ok(),
    }
}

fn uint(text: &str) -> Option<u64> {
    let text = text.trim_end_matches(['u', 'U']);
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn float(sign: &str, text: &str) -> Option<f64> {
    format!("{sign}{text}")
        .parse()
        .ok()
        .filter(|value: &f64| value.is_finite())
}
