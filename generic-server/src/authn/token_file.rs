//! `--token-auth-file`: tokens in a CSV file, `token,user,uid,"group1,group2"`.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use super::{TokenAuthenticator, TokenVerdict, server_audiences};
use crate::request::User;

/// The fault of a token file. Never shows its content.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// It cannot be read.
    #[error("cannot read the token file `{path}`")]
    Read {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A record is too short.
    #[error("token file '{path}' must have at least 3 columns (token, user name, user uid), found {found}")]
    Columns {
        /// The file.
        path: String,
        /// How many there are.
        found: usize,
    },
    /// The CSV is broken.
    #[error("token file '{path}', record on line {line}: {problem}")]
    Csv {
        /// The file.
        path: String,
        /// Where.
        line: usize,
        /// A description of the problem.
        problem: &'static str,
    },
}

/// Authenticates users by a fixed list of tokens.
pub struct TokenFile {
    tokens: HashMap<String, User>,
    audiences: Vec<String>,
}

impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenFile")
            .field("tokens", &self.tokens.len())
            .finish_non_exhaustive()
    }
}

impl TokenFile {
    /// Reads a file; the tokens are good for these audiences.
    ///
    /// # Errors
    /// When it cannot be read or understood.
    pub fn read(path: &Path, audiences: Vec<String>) -> Result<Self, TokenFileError> {
        let named = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, &named, audiences),
            Err(source) => Err(TokenFileError::Read { path: named, source }),
        }
    }

    /// Reads the text of a file called `path`.
    ///
    /// # Errors
    /// When it cannot be understood.
    pub fn parse(text: &str, path: &str, audiences: Vec<String>) -> Result<Self, TokenFileError> {
        let mut tokens = HashMap::new();
        let records = records(text).map_err(|(line, problem)| TokenFileError::Csv {
            path: path.into(),
            line,
            problem,
        })?;
        for record in records {
            let [token, name, uid, ..] = record.as_slice() else {
                return Err(TokenFileError::Columns {
                    path: path.into(),
                    found: record.len(),
                });
            };
            if token.is_empty() {
                tracing::warn!(path, "an empty token in the token file is left out");
                continue;
            }
            let groups = record
                .get(3)
                .map(|list| list.split(',').map(str::to_string).collect());
            let user = User {
                name: name.clone(),
                uid: uid.clone(),
                groups: groups.unwrap_or_default(),
                ..User::default()
            };
            if tokens.insert(token.clone(), user).is_some() {
                tracing::warn!(
                    path,
                    "a token occurs twice in the token file: the last one is used"
                );
            }
        }
        Ok(TokenFile { tokens, audiences })
    }
}

#[async_trait::async_trait]
impl TokenAuthenticator for TokenFile {
    async fn authenticate_token(&self, token: &str, audiences: &[String]) -> TokenVerdict {
        match (
            self.tokens.get(token),
            server_audiences(&self.audiences, audiences),
        ) {
            (Some(user), Some(audiences)) => TokenVerdict::User(user.clone(), audiences),
            _ => TokenVerdict::NotMine,
        }
    }
}

/// The records of a CSV text as Go's `encoding/csv` reads them; empty lines count for nothing.
fn records(text: &str) -> Result<Vec<Vec<String>>, (usize, &'static str)> {
    let mut all = Vec::new();
    let mut record = Vec::new();
    let mut chars = text.chars().peekable();
    let mut line = 1;
    while chars.peek().is_some() {
        let mut field = String::new();
        if chars.next_if_eq(&'"').is_some() {
            loop {
                match chars.next() {
                    None => return Err((line, "extraneous or missing \" in quoted-field")),
                    Some('"') if chars.next_if_eq(&'"').is_some() => field.push('"'),
                    Some('"') => break,
                    Some(c) => {
                        line += usize::from(c == '\n');
                        field.push(c);
                    }
                }
            }
            if !matches!(chars.peek(), None | Some(',' | '\n' | '\r')) {
                return Err((line, "extraneous or missing \" in quoted-field"));
            }
        } else {
            while let Some(c) = chars.next_if(|c| *c != ',' && *c != '\n') {
                if c == '"' {
                    return Err((line, "bare \" in non-quoted field"));
                }
                field.push(c);
            }
            if field.ends_with('\r') {
                field.pop();
            }
        }
        chars.next_if_eq(&'\r');
        let more = chars.next_if_eq(&',').is_some();
        if more || !record.is_empty() || !field.is_empty() {
            record.push(field);
        }
        if more && chars.peek().is_none() {
            record.push(String::new());
        }
        if !more {
            chars.next_if_eq(&'\n');
            line += 1;
            if !record.is_empty() {
                all.push(std::mem::take(&mut record));
            }
        }
    }
    if !record.is_empty() {
        all.push(record);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn users_by_token() {
        let text = "t1,alice,u1,\"dev,qa\"\r\n\nt2,bob,u2\n,nobody,u3\nt3,\"a \"\"b\"\"\",u4,g\n";
        let file = TokenFile::parse(text, "tokens", vec!["api".into()]).unwrap();
        let ask = async |token: &str, audiences: &[&str]| {
            let audiences: Vec<String> = audiences.iter().map(|a| (*a).to_string()).collect();
            match file.authenticate_token(token, &audiences).await {
                TokenVerdict::User(user, audiences) => Some(format!(
                    "{} {} {} {}",
                    user.name,
                    user.uid,
                    user.groups.join("+"),
                    audiences.join("+")
                )),
                _ => None,
            }
        };
        assert_eq!(ask("t1", &[]).await.unwrap(), "alice u1 dev+qa api");
        assert_eq!(ask("t1", &["api", "x"]).await.unwrap(), "alice u1 dev+qa api");
        assert_eq!(ask("t1", &["x"]).await, None);
        assert_eq!(ask("t2", &[]).await.unwrap(), "bob u2  api");
        assert_eq!(ask("t3", &[]).await.unwrap(), "a \"b\" u4 g api");
        assert_eq!(ask("", &[]).await, None);
        assert_eq!(ask("t4", &[]).await, None);
    }

    #[test]
    fn broken_files() {
        let error = |text: &str| TokenFile::parse(text, "f", Vec::new()).unwrap_err().to_string();
        assert!(error("a,b\n").contains("at least 3 columns"));
        assert!(error("a,\"b\n").contains("missing \""));
        assert!(error("a,b\"c,d\n").contains("line 1"));
        assert!(!error("s3cret,b\n").contains("s3cret"));
    }
}
