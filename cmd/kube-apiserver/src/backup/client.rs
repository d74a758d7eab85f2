//! Fetches a snapshot from the server that a kubeconfig names.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use generic_server::client::egress::Route;
use generic_server::client::fault_of;
use generic_server::delegated::{ClientError, KubeClient, Kubeconfig};

use super::{DAMAGED, PATH, append};

/// Gets the snapshot into a file. Returns how many damaged objects the server left out of it.
pub(super) async fn fetch(kubeconfig: &Path, file: &mut BufWriter<File>) -> Result<u64, String> {
    let config = Kubeconfig::read(kubeconfig).map_err(|error| error.to_string())?;
    let client = KubeClient::new(&config, &Route::Direct).map_err(|error| error.to_string())?;
    let mut answer = client.download(PATH).await.map_err(|error| match error {
        ClientError::Status(status, _) => format!("the server answered {status} to GET {PATH}"),
        ClientError::Unreachable(why) => format!("cannot reach {}: {}", config.server, fault_of(&*why)),
        ClientError::TimedOut(_) => format!("{} does not answer", config.server),
        ClientError::Credentials(why) => why,
    })?;
    let damaged = answer
        .headers()
        .get(DAMAGED)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    loop {
        match answer.chunk().await {
            Ok(Some(bytes)) => append(file, &bytes)?,
            Ok(None) => return Ok(damaged.unwrap_or_default()),
            Err(error) => return Err(format!("the snapshot broke off: {}", fault_of(&*error))),
        }
    }
}
