//! A load tool for any Kubernetes API server: it takes a kubeconfig, runs one phase and prints one JSON line about it.
//!
//! Nothing in it but `planes` knows this project's server, so that the same phase can be run against kube-apiserver side by side. With
//! `--pid` it adds what the server's processes used: CPU per operation and resident memory, read from `/proc`.

mod access;
mod aggregation;
mod client;
mod collect;
mod crds;
mod figures;
mod forms;
mod heavy;
mod phases;
mod planes;
mod process;
mod suite;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Loads a Kubernetes API server and prints one JSON line.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Arguments {
    /// The kubeconfig of an administrator with a client certificate.
    #[arg(long, global = true)]
    kubeconfig: Option<PathBuf>,
    /// Processes of the server (API server, etcd), for CPU and memory.
    #[arg(long, global = true)]
    pid: Vec<u32>,
    /// The namespace to work in; made when absent.
    #[arg(long, global = true, default_value = "bench")]
    namespace: String,
    /// Asks here (`https://host:port`) instead of the kubeconfig's server, with its client certificate, and takes any serving
    /// certificate: an aggregated server asked directly.
    #[arg(long, global = true)]
    server: Option<String>,
    #[command(subcommand)]
    phase: Phase,
}

/// The object to create by default.
pub(crate) const CONFIG_MAP: &str = r#"{"apiVersion":"v1","kind":"ConfigMap"}"#;

/// The phase to run.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Phase {
    /// Starts a command and measures the time until `/readyz` answers ok; then ends it.
    Start {
        /// Where `/readyz` is.
        #[arg(long, default_value = "https://127.0.0.1:6443")]
        url: String,
        /// Runs.
        #[arg(long, default_value_t = 5)]
        runs: usize,
        /// The command.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Creates ConfigMaps.
    Create(Load),
    /// Replaces ConfigMaps that are there.
    Update(Load),
    /// Merge-patches ConfigMaps that are there.
    MergePatch(Load),
    /// Strategic-merge-patches ConfigMaps that are there.
    StrategicPatch(Load),
    /// Applies ConfigMaps that are not there.
    ApplyCreate(Load),
    /// Applies a change to ConfigMaps that are there.
    ApplyUpdate(Load),
    /// Reads ConfigMaps one by one, consistently.
    Get(Load),
    /// Creates pods.
    CreatePods(Load),
    /// Lists the ConfigMaps of the namespace.
    List {
        /// Lists in all.
        #[arg(long, default_value_t = 20)]
        count: usize,
        /// A query such as `resourceVersion=0` or `labelSelector=group%3D7`.
        #[arg(long, default_value = "")]
        query: String,
    },
    /// Reads pods in every form that clients ask for: lists, lists by label and single ones in JSON, protobuf and as Tables, plain and
    /// compressed. Prints the server's CPU for each.
    Forms(forms::Forms),
    /// Watches with many watchers while ConfigMaps are written, and measures delivery.
    Watch {
        /// Watchers.
        #[arg(long, default_value_t = 200)]
        watchers: usize,
        /// Events.
        #[arg(long, default_value_t = 1000)]
        events: usize,
        /// Connections that they share.
        #[arg(long, default_value_t = 10)]
        connections: usize,
        /// The collection that is watched; the namespace's ConfigMaps when unset.
        #[arg(long)]
        collection: Option<String>,
        /// The object to create in it, without metadata.
        #[arg(long, default_value = CONFIG_MAP)]
        object: String,
    },
    /// Asks for one path.
    GetPath {
        /// The path.
        path: String,
        /// Clients at once, each with a connection of its own.
        #[arg(long, default_value_t = 32)]
        clients: usize,
        /// Requests in all.
        #[arg(long, default_value_t = 5000)]
        count: usize,
    },
    /// Makes an object.
    Put {
        /// The collection.
        collection: String,
        /// The object.
        object: String,
    },
    /// Registers an aggregated server on this machine, and measures until it is served.
    Register(aggregation::Registration),
    /// Starts a registered backend, kills it and starts it again, and measures how soon a path reflects it.
    Outage {
        /// The path.
        #[arg(long)]
        path: String,
        /// Runs.
        #[arg(long, default_value_t = 3)]
        runs: usize,
        /// The command.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Creates large CustomResourceDefinitions until the last is served, and measures their cost.
    Crds(CrdLoad),
    /// Deletes an owner of many ConfigMaps and measures until they are gone.
    Gc {
        /// Dependents.
        #[arg(long, default_value_t = 10_000)]
        count: usize,
        /// Clients that make them.
        #[arg(long, default_value_t = 32)]
        clients: usize,
    },
    /// Deletes many namespaces at once and measures until they are gone.
    Namespaces {
        /// Namespaces.
        #[arg(long, default_value_t = 200)]
        count: usize,
        /// Clients that make and delete them.
        #[arg(long, default_value_t = 32)]
        clients: usize,
    },
    /// Keeps requests under way that cost as much as one may, and measures how `/readyz` and a small GET fare beside them.
    Heavy {
        /// Requests at once, each of another sort.
        #[arg(long, default_value_t = 8)]
        clients: usize,
        /// For how long.
        #[arg(long, default_value_t = 30)]
        seconds: u64,
    },
    /// Measures what authentication, authorization, auditing and fairness cost, and a client beside a flood; a line for each row.
    Access(access::Access),
    /// Starts many planes in this process, and forks of one, and measures time, memory and CPU; a line for each part.
    Planes(planes::Planes),
    /// Prints the audit policy that `access audit` wants the server to run with.
    AuditPolicy,
    /// Deletes the namespace's ConfigMaps.
    Clean,
    /// Prints the memory of the processes.
    Memory,
    /// Runs the rows of docs/benchmarks.md one after another on an empty server, a line each.
    Suite {
        /// Objects of 2 KiB in the end; below 30,000 the last rows are left out.
        #[arg(long, default_value_t = 100_000)]
        objects: usize,
    },
    /// Prints two suites' lines side by side, as Markdown.
    Compare {
        /// The lines of one server.
        ours: PathBuf,
        /// The lines of the other.
        theirs: PathBuf,
    },
}

/// How much load.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Load {
    /// Clients at once, each with a connection of its own.
    #[arg(long, default_value_t = 32)]
    pub(crate) clients: usize,
    /// Operations in all.
    #[arg(long, default_value_t = 1000)]
    pub(crate) count: usize,
    /// Bytes of each object's data.
    #[arg(long, default_value_t = 2048)]
    pub(crate) size: usize,
    /// The number of the first object.
    #[arg(long, default_value_t = 0)]
    pub(crate) from: usize,
}

/// How many CustomResourceDefinitions.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct CrdLoad {
    /// Clients at once, each with a connection of its own.
    #[arg(long, default_value_t = 16)]
    pub(crate) clients: usize,
    /// CustomResourceDefinitions in all.
    #[arg(long, default_value_t = 500)]
    pub(crate) count: usize,
    /// Bytes of each.
    #[arg(long, default_value_t = 50 * 1024)]
    pub(crate) size: usize,
    /// Seconds between the last of them and the measurement of memory.
    #[arg(long, default_value_t = 2)]
    pub(crate) settle: u64,
    /// How many more are created one by one at the end.
    #[arg(long, default_value_t = 20)]
    pub(crate) more: usize,
}

/// As the server has it: what `planes` measures is the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "its output is its purpose"
)]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.phase {
        Phase::Compare { ours, theirs } => suite::compare(ours, theirs).map(|table| print!("{table}")),
        Phase::AuditPolicy => {
            print!("{}", access::POLICY);
            Ok(())
        }
        Phase::Access(access) => measure_access(&arguments, access).await,
        Phase::Planes(planes) => measure_planes(planes).await,
        Phase::Suite { objects } => run_all(&arguments, suite::rows(*objects)).await,
        phase => run(&arguments, phase).await.map(|line| println!("{line}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments, phase: &Phase) -> Result<serde_json::Value, client::Error> {
    let kubeconfig = arguments.kubeconfig.as_deref();
    let server = arguments.server.as_deref();
    phases::run(kubeconfig, &arguments.pid, &arguments.namespace, server, phase).await
}

#[expect(clippy::print_stdout, reason = "its output is its purpose")]
async fn run_all(arguments: &Arguments, rows: Vec<(String, Phase)>) -> Result<(), client::Error> {
    for (name, phase) in rows {
        let mut line = run(arguments, &phase).await?;
        line["row"] = name.into();
        println!("{line}");
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "its output is its purpose")]
async fn measure_planes(planes: &planes::Planes) -> Result<(), client::Error> {
    planes::run(planes, &mut |line| println!("{line}")).await
}

#[expect(clippy::print_stdout, reason = "its output is its purpose")]
async fn measure_access(arguments: &Arguments, access: &access::Access) -> Result<(), client::Error> {
    let (target, _) = phases::connect(
        arguments.kubeconfig.as_deref(),
        arguments.server.as_deref(),
        &arguments.namespace,
    )
    .await?;
    let print = &mut |line| println!("{line}");
    access::run(&target, &arguments.namespace, &arguments.pid, access, print).await
}
