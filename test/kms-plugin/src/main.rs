//! `kms-plugin SOCKET [KEY_ID]`: the test plugin as a process, to be shown to another API server.

use std::path::PathBuf;
use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(socket) = arguments.next().map(PathBuf::from) else {
        return ExitCode::from(2);
    };
    let key = arguments.next().unwrap_or_else(|| "key-1".into());
    match kms_plugin::Plugin::listen(&socket, &key) {
        Ok(_plugin) => {
            let _ = tokio::signal::ctrl_c().await;
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}
