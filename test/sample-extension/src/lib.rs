//! A small extension API server, built on `generic-server` as anybody outside would: its own process, its own storage, one kind
//! in its own group, everything about access delegated to the main API server. `docs/extension-authors.md` walks through it.

mod access;
mod fish;
mod rules;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use generic_server::admission::AdmissionChain;
use generic_server::authz::Authorizer;
use generic_server::chain::{self, ChainConfig, OuterLayers};
use generic_server::discovery::Documents;
use generic_server::handlers::{self, ServeEnv};
use generic_server::health::Health;
use generic_server::lifecycle::Timeline;
use generic_server::openapi::{OpenApi, StaticDocuments};
use generic_server::pki::Authority;
use generic_server::serve::{ConnectionLimits, Tls, TlsOptions, bind, certified_key};
use generic_server::server::{ApiServer, WithDocuments};
use generic_server::spawn::Tasks;
use generic_server::startup::{Prepared, Running};
use rules::Aquarium;
use storage::{EngineKind, EtcdOptions, OpenOptions, StorageError, Store};

pub use fish::{GROUP, KIND, SECOND_VERSION, VERSION};

/// The largest request body.
const MAX_BODY: usize = 3 << 20;

/// Serves fishes.sample.example.com behind a Kubernetes API server.
#[derive(Debug, Clone, Parser)]
#[command(name = "sample-extension", version)]
pub struct Options {
    /// The address to listen on.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// The port for HTTPS; 0 picks a free one.
    #[arg(long, default_value_t = 8443)]
    pub secure_port: u16,
    /// The serving certificate (PEM, with chain), of the name SERVICE.NAMESPACE.svc. One of no known authority is made when unset.
    #[arg(long, requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long, requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Where objects are kept; in memory when unset.
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
    /// The engine that stores them: redb or sled.
    #[arg(long, default_value = "redb", value_parser = ["redb", "sled"])]
    pub storage_backend: String,
    /// Keeps objects in this etcd instead, below /registry/sample.example.com.
    #[arg(long, value_delimiter = ',', conflicts_with = "data_dir")]
    pub etcd_servers: Vec<String>,
    /// Species that are refused.
    #[arg(long, value_delimiter = ',')]
    pub refuse_species: Vec<String>,
    /// How to reach the main API server. Without it only `system:masters` may do anything.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// Authorities of front proxies; those of the main API server when unset.
    #[arg(long)]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// Common names that front proxies may have; any when empty.
    #[arg(long, value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,
    /// Authorities of client certificates; those of the main API server when unset.
    #[arg(long)]
    pub client_ca_file: Option<PathBuf>,
}

impl Options {
    /// The options without any flag.
    pub fn defaults() -> Self {
        Options::parse_from(["sample-extension"])
    }
}

/// Why it cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be listened on.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
    /// The serving certificate cannot be used.
    #[error("unusable serving certificate: {0}")]
    Certificate(String),
    /// The store cannot be opened.
    #[error("cannot open the store: {0}")]
    Store(#[from] StorageError),
    /// The main API server cannot be asked, or its trust configuration cannot be read.
    #[error("cannot delegate access: {0}")]
    Access(String),
    /// The kind's schema does not compile.
    #[error("the schema of the kind does not compile")]
    Schema,
}

fn open(options: &Options) -> Result<Arc<dyn Store>, StorageError> {
    if !options.etcd_servers.is_empty() {
        return storage::open_etcd(&EtcdOptions {
            endpoints: options.etcd_servers.clone(),
            ..EtcdOptions::default()
        });
    }
    let Some(dir) = &options.data_dir else {
        return Ok(storage::memory());
    };
    storage::open(OpenOptions {
        dir: Some(dir.clone()),
        engine: match options.storage_backend.as_str() {
            "sled" => EngineKind::Sled,
            _ => EngineKind::Redb,
        },
        ..OpenOptions::default()
    })
}

/// A running extension server.
#[derive(Debug)]
pub struct Extension(Running);

impl Extension {
    /// Opens the store, reads the main server's trust configuration, listens; ready when it returns.
    ///
    /// # Errors
    /// The error of the options, the store or the main server.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        let running = prepare(options).await?.run();
        running.lifecycle().set_ready();
        Ok(Extension(running))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Ends it in order: requests finish, watches end, the store is closed.
    pub async fn stop(self) {
        self.0.stop().await;
    }
}

/// The server with all its parts, before it serves.
async fn prepare(options: Options) -> Result<Prepared, StartError> {
    let engine = open(&options)?;
    let tasks = Tasks::new();
    let (authenticator, authorizer) = access::build(&options, &tasks).await?;
    let wanted = SocketAddr::new(options.bind_address, options.secure_port);
    let listener = bind(wanted)
        .await
        .map_err(|error| StartError::Listen(wanted, error))?;
    let delegate = serve_fishes(&options, engine.clone(), authorizer.clone(), listener.address())?;
    let mut config = ChainConfig::new(authenticator, authorizer, delegate);
    Health::new(config.lifecycle.clone()).install(&mut config.endpoints, &config.metrics);
    config.endpoints.add("/metrics", config.metrics.clone());
    Ok(Prepared {
        tls: serving_tls(&options, listener.address())?,
        limits: ConnectionLimits::default(),
        listener,
        chain: chain::build(config),
        layers: OuterLayers::default(),
        timeline: Timeline::default(),
        tasks,
        engines: vec![engine],
    })
}

/// The group, with discovery and OpenAPI in front of it.
fn serve_fishes(
    options: &Options,
    engine: Arc<dyn Store>,
    authorizer: Arc<dyn Authorizer>,
    address: SocketAddr,
) -> Result<Arc<WithDocuments>, StartError> {
    let group = fish::group(engine).ok_or(StartError::Schema)?;
    let env = ServeEnv {
        admission: AdmissionChain::new(vec![Arc::new(Aquarium {
            refused: options.refuse_species.clone(),
        })]),
        authorizer,
        max_body: MAX_BODY,
        min_request_timeout: handlers::MIN_REQUEST_TIMEOUT,
    };
    let api = Arc::new(ApiServer::new(vec![group.clone()], env));
    let openapi = [VERSION, SECOND_VERSION]
        .into_iter()
        .fold(StaticDocuments::new(vec![group]), |openapi, version| {
            openapi.with_schema(GROUP, version, KIND, fish::schema(version))
        });
    Ok(Arc::new(WithDocuments {
        discovery: Documents::new(vec![api.clone()], address.to_string()),
        openapi: OpenApi::new(vec![Arc::new(openapi)]),
        next: api,
    }))
}

/// With the certificate that the options name, or one of no known authority.
fn serving_tls(options: &Options, address: SocketAddr) -> Result<Arc<Tls>, StartError> {
    let bad = |error: &dyn std::fmt::Display| StartError::Certificate(error.to_string());
    let key = match (&options.tls_cert_file, &options.tls_private_key_file) {
        (Some(certificate), Some(key)) => certified_key(certificate, key).map_err(|e| bad(&e))?,
        _ => {
            let names = ["localhost".to_string(), address.ip().to_string()];
            let authority = Authority::generate("sample-extension").map_err(|e| bad(&e))?;
            let issued = authority
                .server("sample-extension", &names)
                .map_err(|e| bad(&e))?;
            issued.certified_key().map_err(|e| bad(&e))?
        }
    };
    Tls::new(TlsOptions::new(key)).map(Arc::new).map_err(|e| bad(&e))
}
