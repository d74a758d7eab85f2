//! Faults: those found while compiling, shown with their place in the source, and those raised while evaluating.

use std::{borrow::Cow, fmt};

/// Everything that is wrong with an expression. `Display` is the text cel-go prints: one block per fault, in source order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileErrors {
    faults: Vec<Fault>,
    total: usize,
    source: Box<str>,
    /// The expression is sound, but a constant in it cannot be made ready to run.
    instantiation: Option<String>,
}

/// One fault; `offset` counts characters, and is absent when the fault has no place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    offset: Option<u32>,
    message: String,
}

const MAX_FAULTS: usize = 100;
const MAX_SNIPPET: usize = 16384;

impl CompileErrors {
    pub(crate) fn new(source: &str) -> CompileErrors {
        CompileErrors {
            faults: Vec::new(),
            total: 0,
            source: source.into(),
            instantiation: None,
        }
    }

    pub(crate) fn instantiation(source: &str, message: String) -> CompileErrors {
        CompileErrors {
            instantiation: Some(message),
            ..CompileErrors::new(source)
        }
    }

    /// The detail of upstream's message: `compilation failed: ..` or `program instantiation failed: ..`.
    pub fn detail(&self) -> String {
        let stage = if self.instantiation.is_some() {
            "program instantiation failed"
        } else {
            "compilation failed"
        };
        format!("{stage}: {self}")
    }

    pub(crate) fn report(&mut self, offset: Option<u32>, message: String) {
        self.total += 1;
        if self.total <= MAX_FAULTS {
            self.faults.push(Fault { offset, message });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    pub(crate) fn into_result<T>(self, value: T) -> Result<T, CompileErrors> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }

    /// The messages alone, without their places, in source order.
    pub fn messages(&self) -> impl Iterator<Item = &str> {
        let mut faults: Vec<&Fault> = self.faults.iter().collect();
        faults.sort_by_key(|fault| fault.offset);
        faults.into_iter().map(|fault| fault.message.as_str())
    }

    /// Line (from 1), column (from 0) and the text of the line at a character offset.
    fn place(&self, offset: u32) -> (usize, usize, &str) {
        let (mut line, mut column, mut start) = (1, 0, 0);
        for (count, (at, c)) in self.source.char_indices().enumerate() {
            if count as u32 == offset {
                break;
            }
            if c == '\n' {
                line += 1;
                column = 0;
                start = at + 1;
            } else {
                column += 1;
            }
        }
        let text = &self.source[start..];
        (line, column, text.split('\n').next().unwrap_or(""))
    }

    fn write_fault(&self, f: &mut fmt::Formatter<'_>, fault: &Fault) -> fmt::Result {
        let Some(offset) = fault.offset else {
            return write!(f, "ERROR: <input>:-1:0: {}", fault.message);
        };
        let (line, column, text) = self.place(offset);
        write!(f, "ERROR: <input>:{line}:{}: {}", column + 1, fault.message)?;
        if text.len() > MAX_SNIPPET {
            return Ok(());
        }
        let text = text.replace('\t', " ");
        write!(f, "\n | {text}\n | ")?;
        let mut chars = text.chars();
        for c in chars.by_ref().take(column) {
            f.write_str(if c.is_ascii() { "." } else { "\u{ff0e}" })?;
        }
        let wide = chars.next().is_some_and(|c| !c.is_ascii());
        f.write_str(if wide { "\u{ff3e}" } else { "^" })
    }
}

impl fmt::Display for CompileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(message) = &self.instantiation {
            return f.write_str(message);
        }
        let mut faults: Vec<&Fault> = self.faults.iter().collect();
        faults.sort_by_key(|fault| fault.offset);
        for (index, fault) in faults.into_iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            self.write_fault(f, fault)?;
        }
        if self.total > MAX_FAULTS {
            write!(f, "\n{} more errors were truncated", self.total - MAX_FAULTS)?;
        }
        Ok(())
    }
}

impl std::error::Error for CompileErrors {}

/// Why an evaluation has no value. `Display` is upstream's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvalError {
    /// The expression failed on this data, e.g. `no such key: a`.
    Failed(Cow<'static, str>),
    /// This one evaluation cost too much.
    CostLimit,
    /// The budget all evaluations share ran out.
    Budget,
}

impl EvalError {
    pub(crate) const NO_OVERLOAD: EvalError = EvalError::Failed(Cow::Borrowed("no such overload"));

    pub(crate) fn fixed(text: &'static str) -> EvalError {
        EvalError::Failed(Cow::Borrowed(text))
    }

    /// An error with this text; hosts use it to report what a callback ran into.
    pub fn new(text: impl Into<String>) -> EvalError {
        EvalError::Failed(Cow::Owned(text.into()))
    }

    /// Whether a limit or budget was passed, as against a failure on the data.
    pub fn is_cost_limit(&self) -> bool {
        matches!(self, EvalError::CostLimit | EvalError::Budget)
    }
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EvalError::Failed(text) => f.write_str(text),
            EvalError::CostLimit => f.write_str("operation cancelled: actual cost limit exceeded"),
            EvalError::Budget => {
                f.write_str("validation failed due to running out of cost budget, no further validation rules will be run")
            }
        }
    }
}

impl std::error::Error for EvalError {}
