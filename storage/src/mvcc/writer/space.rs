//! The free space of the file system, asked for now and then.

use std::path::Path;
use std::time::{Duration, Instant};

use super::super::kv::Kv;
use crate::OpenOptions;

/// How often the free space is asked for, at most, and after how many bytes written regardless.
const SPACE_EVERY: Duration = Duration::from_millis(500);
const SPACE_BYTES: u64 = 16 << 20;

/// Watches the free space of the file system.
#[derive(Debug, Default)]
pub(super) struct Space {
    checked: Option<Instant>,
    /// Bytes since then.
    pub(super) written: u64,
    refusal: Option<String>,
}

impl Space {
    /// Why nothing may be written now, if so.
    pub(super) fn refusal(&mut self, kv: Option<&dyn Kv>, options: &OpenOptions) -> Option<String> {
        let min_free = options.min_free_bytes;
        let kv = kv.filter(|_| min_free > 0)?;
        let fresh = self.checked.is_some_and(|at| at.elapsed() < SPACE_EVERY) && self.written < SPACE_BYTES;
        if !fresh {
            self.checked = Some(Instant::now());
            self.written = 0;
            self.refusal = match kv.free_bytes() {
                Ok(Some(free)) if free < min_free => Some(format!(
                    "{free} bytes are free at `{}`, {min_free} are kept in reserve",
                    options.dir.as_deref().unwrap_or(Path::new("")).display()
                )),
                Ok(_) => None,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "cannot watch the free space"
                    );
                    None
                }
            };
        }
        self.refusal.clone()
    }
}
