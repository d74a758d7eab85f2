//! The bearer token of requests to a server outside: a fixed one, or one in a file that is read again.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use http::HeaderValue;
use http::header::InvalidHeaderValue;
use parking_lot::Mutex;

/// How long the token of a file is used before the file is read again. Upstream's figure.
const REREAD_AFTER: Duration = Duration::from_secs(60);

/// A token as the header `Authorization` has it.
pub(crate) struct BearerToken {
    current: Mutex<HeaderValue>,
    file: Option<TokenFile>,
}

struct TokenFile {
    path: PathBuf,
    /// When it was last read, or tried to.
    read: Mutex<Instant>,
}

impl std::fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BearerToken").finish_non_exhaustive()
    }
}

impl BearerToken {
    /// A token that was just read. `file`: where from, if it is to be read again.
    ///
    /// # Errors
    /// No header can have it.
    pub(crate) fn new(token: &str, file: Option<PathBuf>) -> Result<Self, InvalidHeaderValue> {
        let file = file.map(|path| TokenFile {
            path,
            read: Mutex::new(Instant::now()),
        });
        Ok(BearerToken {
            current: Mutex::new(header(token)?),
            file,
        })
    }

    /// The token for a request now. When its file cannot be read or has none, the one before goes on.
    pub(crate) async fn get(&self) -> HeaderValue {
        self.at(Instant::now()).await
    }

    async fn at(&self, now: Instant) -> HeaderValue {
        if let Some(file) = &self.file
            && file.is_due(now)
        {
            match file.token().await {
                Ok(token) => *self.current.lock() = token,
                Err(error) => {
                    let path = file.path.display();
                    tracing::error!(%path, error, "the token of a kubeconfig cannot be read again");
                }
            }
        }
        self.current.lock().clone()
    }
}

impl TokenFile {
    /// Whether the file is to be read, which the first request that finds it so does; others use the token before meanwhile.
    fn is_due(&self, now: Instant) -> bool {
        let mut read = self.read.lock();
        let is_due = now.saturating_duration_since(*read) >= REREAD_AFTER;
        if is_due {
            *read = now;
        }
        is_due
    }

    async fn token(&self) -> Result<HeaderValue, String> {
        let text = tokio::fs::read_to_string(&self.path).await;
        let text = text.map_err(|error| error.to_string())?;
        match text.trim() {
            "" => Err("it is empty".into()),
            token => header(token).map_err(|error| error.to_string()),
        }
    }
}

fn header(token: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_token_of_a_file_is_read_again_after_a_minute() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("token");
        let write = |text: &str| std::fs::write(&path, text).expect("it is written");
        let token = BearerToken::new("one", Some(path.clone())).expect("a token");
        let since = Instant::now();
        let check = async |seconds: u64, expected: &str| {
            let found = token.at(since + Duration::from_secs(seconds)).await;
            assert_eq!(found, format!("Bearer {expected}"), "after {seconds} s");
        };
        write("two\n");
        check(59, "one").await;
        check(61, "two").await;
        write("three");
        check(120, "two").await;
        check(121, "three").await;
        // A file that is being replaced, or has no token, takes none away.
        for (seconds, text) in [(182, " \n"), (243, "a\nb")] {
            write(text);
            check(seconds, "three").await;
        }
        std::fs::remove_file(&path).expect("it is removed");
        check(304, "three").await;
        write("four");
        check(305, "three").await;
        check(364, "four").await;
        let fixed = BearerToken::new("t", None).expect("a token");
        assert_eq!(fixed.at(since + REREAD_AFTER).await, "Bearer t");
        assert!(BearerToken::new("a\nb", None).is_err());
    }
}
