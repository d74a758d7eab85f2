//! Files and credentials that operators and clients supply.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use generic_server::authn::token_file::TokenFile;
use generic_server::client::egress::Route;
use generic_server::delegated::{KubeClient, Kubeconfig};
use generic_server::encryption::Encryption;
use generic_server::pki::{self, Authority};
use generic_server::spawn::Tasks;

use kube_apiserver::{PluginConfigs, PluginSelection};

use crate::halves;

/// PEM, certificates and keys.
pub fn certificates(data: &[u8]) {
    let (certificate, key) = halves(data);
    let certificate = String::from_utf8_lossy(certificate);
    let _ = pki::expires(&certificate);
    let _ = Authority::load(&certificate, &String::from_utf8_lossy(key));
}

/// A kubeconfig, of a webhook or of an extension server, and the client that it makes. Files that it names are none of its own.
pub fn kubeconfig(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let names_files = ["tokenFile", "client-", "certificate-authority"]
        .iter()
        .any(|key| text.contains(key) && !text.contains(&format!("{key}data")));
    if names_files && text.contains("/dev/") {
        return;
    }
    if let Ok(config) = Kubeconfig::parse(&text) {
        let _ = KubeClient::new(&config, &Route::Direct);
    }
}

/// A file of `--admission-control-config-file`, for plugins that are all on. Files that it names are none of its own.
pub fn admission(data: &[u8]) {
    static PLUGINS: LazyLock<PluginSelection> = LazyLock::new(|| {
        let names = ["EventRateLimit", "PodNodeSelector", "PodTolerationRestriction"];
        let (plugins, _) = PluginSelection::new(&names.map(str::to_string), &[]).expect("plugins that exist");
        plugins
    });
    if String::from_utf8_lossy(data).contains("/dev/") {
        return;
    }
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), data).expect("a file");
    let read = || PluginConfigs::read(Some(file.path()), &PLUGINS, true).map(|(_, warnings)| warnings);
    assert_eq!(read(), read(), "the same file is read the same");
}

/// A file of static tokens.
pub fn tokens(data: &[u8]) {
    let _ = TokenFile::parse(&String::from_utf8_lossy(data), "tokens.csv", Vec::new());
}

/// An EncryptionConfiguration, but for those that name plugins to be talked to.
pub fn encryption(data: &[u8]) {
    static RUNTIME: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
    });
    if data.windows(3).any(|word| word.eq_ignore_ascii_case(b"kms")) {
        return;
    }
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), data).expect("a file");
    let path: &Path = file.path();
    let _ = RUNTIME.block_on(async { Encryption::load(path, false, &Tasks::new()).await });
}

/// A file of `--egress-selector-config-file`. Files that it names are none of its own.
pub fn egress(data: &[u8]) {
    if String::from_utf8_lossy(data).contains("/dev/") {
        return;
    }
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), data).expect("a file");
    let read = || {
        let read = kube_apiserver::read_egress(file.path(), &Arc::default(), &Tasks::new());
        read.map(|selector| format!("{selector:?}"))
    };
    assert_eq!(read().is_ok(), read().is_ok(), "the same file is read the same");
}
