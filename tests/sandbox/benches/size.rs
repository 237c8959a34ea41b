//! A large cluster: how long it takes to stand, what it weighs, and how fast it answers then.
//!
//! `cargo bench -p kube-sandbox --bench size` prints figures and ends with a verdict. The size is taken from
//! `NM_SIZE_NODES` and `NM_SIZE_PODS`; the limits hold for the full size, which is the default.
#![expect(clippy::print_stdout, reason = "figures are what a benchmark is for")]

use std::error::Error;
use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures::{AsyncBufReadExt, TryStreamExt};
use http::Request;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube_sandbox::resource::PODS;
use kube_sandbox::sandbox::{Options, Sandbox};
use kube_sandbox::workload::node_name;
use serde_json::{Value, json};

const MOST_SECONDS: f64 = 60.0;
const MOST_GIBIBYTES: f64 = 2.5;
const MOST_MILLISECONDS: f64 = 5.0;
/// How many requests of a kind are timed.
const SAMPLES: usize = 200;
/// Watches of one node each that look on.
const WATCHES: usize = 50;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    let measured =
        tokio::runtime::Runtime::new().map_err(Failure::from).and_then(|tokio| tokio.block_on(measure()));
    match measured {
        Ok(verdict) if verdict.is_empty() => {
            println!("PASS");
            ExitCode::SUCCESS
        }
        Ok(verdict) => {
            println!("FAIL: {}", verdict.join(", "));
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("FAIL: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Takes all figures; answers with those that are over their limit.
async fn measure() -> Result<Vec<String>, Failure> {
    let (nodes, pods) =
        (from_environment("NM_SIZE_NODES", 5_000)?, from_environment("NM_SIZE_PODS", 150_000)?);
    println!("{nodes} nodes, {pods} pods and one more on each node");
    let began = Instant::now();
    let (start_delay, stop_delay) = (Duration::ZERO, Duration::ZERO);
    let options = Options { nodes, pods, start_delay, stop_delay, ..Options::default() };
    let sandbox = Sandbox::start(options).await?;
    let mut figures = Figures::default();
    figures.add("all pods Ready", began.elapsed().as_secs_f64(), "s", MOST_SECONDS);
    println!("{:<28} {:>9.3} s of processor time", "", processor_time()?);
    figures.add("memory, at most so far", peak_memory()?, "GiB", MOST_GIBIBYTES);

    let client = client(&sandbox).await?;
    let mut lists = Vec::new();
    for number in spread(nodes) {
        lists.push(list(&client, &node_name(number, nodes)).await?);
    }
    figures.add_median("list of one node's pods", lists);
    figures.add_median("eviction", evict_many(&sandbox, &client).await?);

    let watches = watch_nodes(&client, nodes).await?;
    figures.add_median("eviction, with 50 watches", evict_many(&sandbox, &client).await?);
    for watch in watches {
        watch.abort();
    }

    let began = Instant::now();
    let bytes = client.request_text(get("/api/v1/pods")?).await?.len();
    println!("{:<28} {:>9.3} s, {} MiB", "list of all pods", began.elapsed().as_secs_f64(), bytes >> 20);
    println!("{:<28} {:>9.3} GiB", "memory, at most at the end", peak_memory()?);
    sandbox.stop().await;
    Ok(figures.over)
}

fn from_environment(name: &str, default: usize) -> Result<usize, Failure> {
    match std::env::var(name) {
        Ok(text) => text.parse().map_err(|error| format!("{name}={text}: {error}").into()),
        Err(_) => Ok(default),
    }
}

#[derive(Default)]
struct Figures {
    over: Vec<String>,
}

impl Figures {
    fn add(&mut self, what: &str, value: f64, unit: &str, most: f64) {
        println!("{what:<28} {value:>9.3} {unit} (limit {most} {unit})");
        if value > most {
            self.over.push(format!("{what}: {value:.3} {unit} > {most} {unit}"));
        }
    }

    fn add_median(&mut self, what: &str, mut times: Vec<Duration>) {
        times.sort_unstable();
        let slowest = times.last().copied().unwrap_or_default();
        let median = times.get(times.len() / 2).copied().unwrap_or(Duration::MAX);
        println!("{:<28} {:>9.3} ms at most, of {}", what, slowest.as_secs_f64() * 1e3, times.len());
        self.add(&format!("{what}, median"), median.as_secs_f64() * 1e3, "ms", MOST_MILLISECONDS);
    }
}

/// The most memory that this process ever held, in GiB.
fn peak_memory() -> Result<f64, Failure> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM in /proc/self/status")?;
    let kibibytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kibibytes / f64::from(1 << 20))
}

/// What this process has used of the processors, which a busy machine does not stretch.
fn processor_time() -> Result<f64, Failure> {
    let schedule = fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = schedule.rsplit_once(')').ok_or("no name in /proc/self/stat")?;
    let ticks: f64 =
        fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    Ok(ticks / 100.0)
}

async fn client(sandbox: &Sandbox) -> Result<Client, Failure> {
    let kubeconfig = Kubeconfig::from_yaml(&sandbox.kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Numbers of nodes, far from each other.
fn spread(nodes: usize) -> impl Iterator<Item = usize> {
    (0..SAMPLES.min(nodes)).map(move |sample| 1 + sample * nodes / SAMPLES.min(nodes))
}

fn get(path: &str) -> Result<Request<Vec<u8>>, Failure> {
    Ok(Request::get(path).body(Vec::new())?)
}

async fn list(client: &Client, node: &str) -> Result<Duration, Failure> {
    let request = get(&format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}"))?;
    let began = Instant::now();
    let text = client.request_text(request).await?;
    let took = began.elapsed();
    let listed: Value = serde_json::from_str(&text)?;
    let pods = listed["items"].as_array().map_or(0, Vec::len);
    if pods == 0 { Err(format!("{node} has no pods").into()) } else { Ok(took) }
}

/// Evicts pods of deployments one after another, from nodes far from each other.
async fn evict_many(sandbox: &Sandbox, client: &Client) -> Result<Vec<Duration>, Failure> {
    let nodes =
        sandbox.cluster().store.read(|state| state.list(&kube_sandbox::resource::NODES, None).count());
    let mut times = Vec::new();
    for number in spread(nodes) {
        let node = node_name(number, nodes);
        let pod = sandbox.cluster().store.read(|state| {
            let mut pods = state.on_node(&PODS, &node);
            pods.find(|pod| pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet")
                .map(|pod| Value::clone(&pod))
        });
        let Some(pod) = pod else { continue };
        let (namespace, name) = (&pod["metadata"]["namespace"], &pod["metadata"]["name"]);
        let (namespace, name) = (namespace.as_str().unwrap_or_default(), name.as_str().unwrap_or_default());
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(serde_json::to_vec(&eviction)?)?;
        let began = Instant::now();
        match client.request_text(request).await {
            Ok(_) => times.push(began.elapsed()),
            // A budget had its say, which takes as long.
            Err(kube::Error::Api(status)) if status.code == 429 => times.push(began.elapsed()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(times)
}

async fn watch_nodes(client: &Client, nodes: usize) -> Result<Vec<tokio::task::JoinHandle<()>>, Failure> {
    let mut watches = Vec::new();
    for number in spread(nodes).take(WATCHES) {
        let node = node_name(number, nodes);
        let events = client
            .request_stream(get(&format!("/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3D{node}"))?)
            .await?;
        watches.push(tokio::spawn(async move {
            let mut lines = events.lines();
            while let Ok(Some(_)) = lines.try_next().await {}
        }));
    }
    Ok(watches)
}
