//! `samite info`: the available transports, the default choice, and all settings.

mod collectives;

use std::fmt::Write;
use std::process::Command;

use clap::Args;
use rustix::thread::{CpuSet, sched_getaffinity};
use samite::bootstrap::Launch;
use samite::{Comm, Rank};
use samite_control::variable::{OF_JOINING, OF_THE_LAUNCHER};
use samite_control::{Parameter, Reader, Settings, environment};
use samite_fabric::shm::{self, Shm, board};
use samite_fabric::{Caps, Port, Reach};
use samite_launch::Topology;
use serde_json::{Value, json};

use self::collectives::Job;
use super::print;

#[derive(Debug, Args)]
pub(crate) struct Info {
    /// Print only libfabric and its providers, with their capabilities
    #[arg(long)]
    providers: bool,
    /// Print only the transport to each rank, and why: of a job if started by `samite run`, else of two ranks on this
    /// host
    #[arg(long)]
    peers: bool,
    /// Print only which protocol carries a message of which size over each transport, and the origin of each threshold
    #[arg(long)]
    protocols: bool,
    /// Print only the algorithms that collective calls would use, why, their rounds, and the bytes that a rank sends
    #[arg(long)]
    collectives: bool,
    /// The number of ranks for --collectives and --schedule
    #[arg(short, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=RANKS_MAX))]
    n: u32,
    /// The bytes of a block for --collectives and --schedule
    #[arg(long, value_name = "B", default_value_t = 1024)]
    bytes: usize,
    /// Print only the steps of each rank in a collective call, such as `allreduce`
    #[arg(long, value_name = "CALL")]
    schedule: Option<String>,
    /// For --collectives and --schedule: the ranks do not share a board, because they run on several hosts or have no
    /// room for it. That is the default if SAMITE_TRANSPORT selects a network
    #[arg(long)]
    no_board: bool,
    /// For --collectives and --schedule: the ranks are on several hosts, with this number of consecutive ranks on each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks_per_host: Option<u32>,
    /// Print only the cores and NUMA nodes of this host, and which of them this process may use; needs libhwloc
    #[arg(long)]
    topology: bool,
    /// Print only the parameters: variable, value and its origin, default, range, meaning
    #[arg(long)]
    parameters: bool,
    /// Print the parameters as a page of Markdown, without this environment's values
    #[arg(long, conflicts_with_all = ["providers", "peers", "protocols", "collectives", "schedule", "topology", "json"])]
    markdown: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Info {
    /// Returns the job of the question about collective calls.
    fn job(&self, settings: &Settings) -> Job {
        let per_host = self.ranks_per_host.map_or(self.n, |ranks| ranks.min(self.n));
        let fits = (2..=board::RANKS_MAX).contains(&per_host);
        // Without a selected transport the ranks of a host use shared memory. A delayed one has no boards.
        let has_shm =
            |name: &str| !name.starts_with("delay(") && name.split('+').any(|part| part == shm::NAME);
        let may_have = fits && settings.transport().is_none_or(has_shm) && !self.no_board;
        let has_board = may_have && settings.engine.board_max >= board::SLOT_BYTES;
        Job { n: self.n, bytes: self.bytes, per_host, has_board }
    }
}

pub(crate) fn info(what: &Info) -> Result<u8, String> {
    if what.markdown {
        return Ok(print(&markdown()));
    }
    let settings = Settings::from_environment().map_err(|error| error.to_string())?;
    let of_collectives = what.collectives || what.schedule.is_some();
    let all = !(what.providers
        || what.peers
        || what.protocols
        || what.topology
        || what.parameters
        || of_collectives);
    let transports = if all || what.providers || what.protocols { transports() } else { Vec::new() };
    let job = what.job(&settings);
    let mut sections = Vec::new();
    if all || what.providers {
        sections.push(providers(&transports));
    }
    if all || what.peers {
        sections.push(peers()?);
    }
    if all || what.protocols {
        sections.extend(protocols(&transports, &settings));
    }
    if what.collectives {
        sections.push(collectives::collectives(&settings, job)?);
    }
    if let Some(call) = &what.schedule {
        sections.push(collectives::schedule(&settings, call, job)?);
    }
    if all || what.topology {
        sections.push(topology());
    }
    if all || what.parameters {
        sections.push(parameters(&settings));
    }
    if what.json {
        let object: serde_json::Map<_, _> =
            sections.into_iter().map(|section| (section.name.to_owned(), section.json)).collect();
        return Ok(print(&format!("{:#}\n", Value::from(object))));
    }
    let texts: Vec<_> =
        sections.into_iter().map(|section| section.text).filter(|text| !text.is_empty()).collect();
    Ok(print(&texts.join("\n")))
}

/// The largest number of ranks for which costs and schedules are printed. An alltoall of so many ranks has a million
/// messages.
const RANKS_MAX: i64 = 1024;

/// A part of the answer, as text and as JSON.
struct Section {
    name: &'static str,
    text: String,
    json: Value,
}

/// A transport with its capabilities, or with the reason why it cannot be used.
struct Transport {
    name: String,
    interface: String,
    caps: Result<Caps, String>,
}

fn transports() -> Vec<Transport> {
    let shm = Shm::open(&samite_fabric::shm::Config::default());
    #[cfg_attr(not(feature = "ofi"), expect(unused_mut, reason = "there is nothing to add"))]
    let mut all = vec![Transport {
        name: "samite-shm".to_owned(),
        interface: "this host".to_owned(),
        caps: shm.map(|port| port.caps().clone()).map_err(|error| error.to_string()),
    }];
    #[cfg(feature = "ofi")]
    match samite_fabric::ofi::survey::survey() {
        Ok(found) => all.extend(found.into_iter().map(|found| Transport {
            interface: match found.address {
                Some(address) => format!("{} {address}", found.interface),
                None => found.interface,
            },
            name: found.provider,
            caps: found.caps.map_err(|error| error.to_string()),
        })),
        Err(error) => all.push(Transport {
            name: "libfabric".to_owned(),
            interface: String::new(),
            caps: Err(error.to_string()),
        }),
    }
    all
}

fn providers(transports: &[Transport]) -> Section {
    let mut rows =
        vec![row(["TRANSPORT", "INTERFACE", "PACKET", "PUT", "GET", "CHANGE", "IMMEDIATE", "FENCE"])];
    let mut refused = String::new();
    for Transport { name, interface, caps } in transports {
        match caps {
            Ok(caps) => rows.push(row([
                name,
                interface,
                &caps.packet_max.to_string(),
                reach(caps.put),
                reach(caps.get),
                reach(caps.change),
                &format!("{} bits", caps.immediate_bits),
                yes(caps.fence),
            ])),
            Err(why) => {
                let _ = writeln!(refused, "  {} not usable: {why}", format!("{name} {interface}").trim());
            }
        }
    }
    let json = transports.iter().map(|Transport { name, interface, caps }| match caps {
        Ok(caps) => json!({
            "transport": name, "interface": interface, "usable": true, "default_between_hosts": default(name, caps),
            "packet_max": caps.packet_max,
            "short_max": caps.short_max, "rma_max": caps.rma_max, "put": reach(caps.put),
            "get": reach(caps.get), "change": reach(caps.change), "passive": caps.passive,
            "put_bytes_max": caps.put_bytes_max, "get_bytes_max": caps.get_bytes_max, "iov_max": caps.iov_max,
            "immediate_bits": caps.immediate_bits, "fence": caps.fence,
        }),
        Err(why) => json!({ "transport": name, "interface": interface, "usable": false, "why": why }),
    });
    let json = json.collect();
    const LEGEND: &str = concat!(
        "  Packet: the most bytes in one. Put, get, change: the memory of a peer that can be written, read, changed\n",
        "  in one step. Immediate: the bytes that can go with a put. Fence: whether a dead peer's operations can be ended\n",
        "  at once, so that their memory is free again.\n",
    );
    let text = format!("Transports\n{}{LEGEND}{}{refused}", table(&rows), defaults(transports));
    Section { name: "transports", text, json }
}

/// Returns why a transport is, or is not, the default between hosts; null if it does not run over TCP.
#[cfg(feature = "ofi")]
fn default(name: &str, caps: &Caps) -> Value {
    match samite_fabric::ofi::choice::default_over_tcp(name, caps.fence) {
        Some(Ok(())) => json!("yes"),
        Some(Err(why)) => json!(format!("no: {why}")),
        None => Value::Null,
    }
}

#[cfg(not(feature = "ofi"))]
fn default(_: &str, _: &Caps) -> Value {
    Value::Null
}

/// Returns a line for each provider over TCP: whether it is the default between hosts, and why.
fn defaults(transports: &[Transport]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for Transport { name, caps, .. } in transports {
        let Some(Value::String(why)) = caps.as_ref().ok().map(|caps| default(name, caps)) else { continue };
        let line = format!("    {name}: {why}\n");
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    format!("  The default between hosts, among the providers over TCP:\n{}", lines.concat())
}

/// Returns the transport to each rank of the job that this process belongs to. If this process was not started as a
/// rank, starts a job of two ranks on this host, and takes the answer of one of them.
fn peers() -> Result<Section, String> {
    let error = |error: &dyn std::fmt::Display| error.to_string();
    let alone = matches!(Launch::detect(&environment).map_err(|found| error(&found))?, Launch::Alone);
    if alone {
        let program = std::env::current_exe().map_err(|found| error(&found))?;
        let mut command = Command::new(&program);
        command.args(["run", "-n", "2", "--timeout", "10", "--"]).arg(&program);
        let output = command.args(["info", "--peers", "--json"]).output().map_err(|found| error(&found))?;
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut answers = serde_json::Deserializer::from_str(&lines).into_iter::<Value>().flatten();
        let first = answers.find_map(|answer| answer.get("peers").cloned());
        return Ok(match first {
            Some(json) => Section { name: "peers", text: peers_text(&json), json },
            None => {
                let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                Section {
                    name: "peers",
                    text: format!("Peers: none can be reached\n  {why}\n"),
                    json: json!({ "error": why }),
                }
            }
        });
    }
    let world = samite::init().map_err(|found| error(&found))?;
    let json = paths(world.comm()).map_err(|found| error(&found))?;
    Ok(Section { name: "peers", text: peers_text(&json), json })
}

/// Exchanges messages between all ranks, and returns the transport from this rank to each other rank.
fn paths(comm: &Comm) -> Result<Value, samite::Error> {
    let others = || (0..comm.size()).map(Rank).filter(|&rank| rank != comm.rank());
    let bounded = comm.with_timeout(std::time::Duration::from_secs(8));
    let exchange = |tag| {
        others().try_for_each(|rank| bounded.send(&[comm.rank().0], rank, tag))?;
        others().try_for_each(|rank| bounded.recv(&mut [0u32], rank, tag).map(|_| ()))
    };
    exchange(0)?;
    let rows =
        others().map(|rank| json!({ "from": comm.rank(), "to": rank, "path": comm.explain(rank) })).collect();
    // Samite forgets the path to a rank when that rank leaves. So a second exchange keeps every rank in the job until
    // all ranks have looked up their paths.
    exchange(1)?;
    Ok(rows)
}

fn peers_text(json: &Value) -> String {
    let mut text = "Peers\n".to_owned();
    for row in json.as_array().into_iter().flatten() {
        let path = row["path"].as_str().unwrap_or("unknown");
        let _ = writeln!(text, "  from rank {} to rank {}: {path}", row["from"], row["to"]);
    }
    text
}

/// Returns which protocol carries which message over each transport, and the origin of each threshold.
fn protocols(transports: &[Transport], settings: &Settings) -> [Section; 3] {
    let mut settings = settings.clone();
    let foreign = settings.remove_foreign_tunings(libfabric().as_deref());
    let mut ways = vec![row(["TRANSPORT", "BYTES", "OWNED", "BORROWED", "OWNED, SYNC", "BORROWED, SYNC"])];
    let mut limits = vec![row(["TRANSPORT", "THRESHOLD", "BYTES", "FROM"])];
    let mut notes = String::new();
    let (mut bands, mut thresholds) = (Vec::new(), Vec::new());
    let mut seen: Vec<&str> = Vec::new();
    for Transport { name, caps, .. } in transports {
        let Ok(caps) = caps else { continue };
        if seen.contains(&name.as_str()) {
            continue;
        }
        seen.push(name);
        for band in samite_p2p::protocols(caps, settings.messages()) {
            let lengths = match band.to {
                Some(to) => format!("{} to {to}", band.from),
                None => format!("{} and more", band.from),
            };
            let (owned, borrowed) = (band.owned_synchronous, band.borrowed_synchronous);
            ways.push(row([name, &lengths, band.owned, band.borrowed, owned, borrowed]));
            bands.push(json!({
                "transport": name, "from": band.from, "to": band.to, "owned": band.owned, "borrowed": band.borrowed,
                "owned_synchronous": owned, "borrowed_synchronous": borrowed,
            }));
        }
        for threshold in samite_p2p::thresholds(caps, settings.messages()) {
            let (parameter, bytes) = (threshold.parameter, threshold.bytes);
            let origin = threshold.limit.map_or_else(|| origin(&settings, name, parameter), str::to_owned);
            limits.push(row([name, parameter, &bytes.to_string(), &origin]));
            thresholds
                .push(json!({ "transport": name, "parameter": parameter, "bytes": bytes, "origin": origin }));
        }
        if let Some(why) = samite_p2p::why_no_puts(caps) {
            let library = libfabric().map_or(String::new(), |version| format!(" of libfabric {version}"));
            let _ = writeln!(notes, "  Long messages over {name}{library} travel in packets: {why}.");
        }
    }
    for tuning in &foreign {
        let (transport, library) = (&tuning.transport, tuning.library.name());
        let _ = writeln!(
            notes,
            "  The tuning file's thresholds for {transport} are ignored: they were measured with {library} {}, which is not \
             the installed version.",
            tuning.version
        );
    }
    let absent = settings.messages().tunings.iter().map(|tuning| tuning.transport.as_str());
    for transport in absent.filter(|absent| transports.iter().all(|transport| transport.name != *absent)) {
        let _ = writeln!(
            notes,
            "  The tuning file has thresholds for {transport}, which is none of these transports."
        );
    }
    let foreign: Vec<_> = foreign
        .iter()
        .map(|of| json!({ "transport": of.transport, "library": of.library.name(), "version": of.version }))
        .collect();
    const MEANING: &str = concat!(
        "  eager: at once, with the envelope. stream: at once, in packets behind it. pull: the receiver gets the bytes.\n",
        "  put: the receiver offers memory, and the sender writes there. push: the receiver calls for the bytes, packet by packet.\n",
        "  sync: the send ends with the match, as a synchronous or ready send. Blocking and nonblocking sends travel alike.\n",
        "  On one host the receiver reads what lies in samite::Heap where it is, from read_min bytes on.\n",
    );
    let text = format!("Protocols by size\n{}{MEANING}", table(&ways));
    let limits = format!("Thresholds\n{}", table(&limits));
    [
        Section { name: "protocols", text, json: bands.into() },
        Section { name: "thresholds", text: limits, json: thresholds.into() },
        Section { name: "ignored_tunings", text: notes, json: foreign.into() },
    ]
}

/// Returns the origin of a parameter's value on the paths of a transport.
fn origin(settings: &Settings, transport: &str, parameter: &str) -> String {
    let tunings = settings.messages().tunings.iter().filter(|tuning| tuning.transport == transport);
    if tunings.flat_map(|tuning| &tuning.values).any(|(name, _)| *name == parameter) {
        return "tuning file".to_owned();
    }
    let parameter =
        Parameter::all().find(|known| known.name == parameter).expect("every threshold is a parameter");
    settings.origin(&parameter).to_string()
}

/// Returns the version of libfabric, if this process has loaded it.
fn libfabric() -> Option<String> {
    #[cfg(feature = "ofi")]
    return samite_fabric::ofi::survey::library_if_loaded().map(|library| library.version);
    #[cfg(not(feature = "ofi"))]
    None
}

fn topology() -> Section {
    let ours = sched_getaffinity(None).ok();
    let ours: Vec<_> =
        ours.iter().flat_map(|set| (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu))).collect();
    let usable = format!("  This process may use {}.\n", count(ours.len(), "processor"));
    let name = "topology";
    let topology = match Topology::of_this_host() {
        Ok(topology) => topology,
        Err(error) => {
            let why = error.to_string();
            let text = format!("Topology: unknown\n  {why}\n{usable}");
            return Section { name, text, json: json!({ "error": why, "usable_processors": ours }) };
        }
    };
    let place = |number: Option<u32>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let mut rows = vec![row(["CORE", "PROCESSORS", "NUMA NODE", "PACKAGE"])];
    for (index, core) in topology.cores.iter().enumerate() {
        let processors: Vec<_> = core.processors.iter().map(u32::to_string).collect();
        let (node, package) = (place(core.numa_node), place(core.package));
        rows.push(row([&index.to_string(), &processors.join(","), &node, &package]));
    }
    let mut text = format!("Topology\n{}", table(&rows));
    for node in &topology.numa_nodes {
        let _ = writeln!(text, "  NUMA node {}: {} MiB", node.number, node.memory >> 20);
    }
    text.push_str(&usable);
    let json = json!({
        "cores": topology.cores, "numa_nodes": topology.numa_nodes, "usable_processors": ours,
    });
    Section { name, text, json }
}

fn count(number: usize, of: &str) -> String {
    format!("{number} {of}{}", if number == 1 { "" } else { "s" })
}

fn parameters(settings: &Settings) -> Section {
    let mut rows = vec![row(["VARIABLE", "VALUE", "UNIT", "FROM", "DEFAULT", "TAKES"])];
    let mut json = Vec::new();
    for parameter in Parameter::all() {
        let (value, default) = (settings.value(&parameter), parameter.default());
        let origin = settings.origin(&parameter).to_string();
        rows.push(row([
            &parameter.variable(),
            &value,
            parameter.unit,
            &origin,
            &default,
            &parameter.range(),
        ]));
        json.push(json!({
            "name": parameter.name, "variable": parameter.variable(), "meaning": parameter.meaning,
            "unit": parameter.unit, "default": default, "range": parameter.range(), "value": value,
            "origin": origin, "read_by": reader(parameter.reader),
        }));
    }
    let meaning = "  `samite info --parameters --markdown` adds the meaning of each.\n";
    let tuned = match settings.messages().tunings.as_slice() {
        [] => "",
        _ => "  The tuning file has other values for some transports: `samite info --protocols`.\n",
    };
    let text = format!("Parameters\n{}{meaning}{tuned}", table(&rows));
    Section { name: "parameters", text, json: json.into() }
}

/// Returns all parameters as the Markdown of the guide's page.
fn markdown() -> String {
    let mut text = "# Parameters\n\n".to_owned();
    for (title, who) in [("Read by every rank", Reader::Rank), ("Read by `samite run`", Reader::Launcher)] {
        let _ =
            writeln!(text, "## {title}\n\n| Variable | Name in code | Default | Unit | Takes | Meaning |");
        text.push_str("| --- | --- | --- | --- | --- | --- |\n");
        for parameter in Parameter::all().filter(|parameter| parameter.reader == who) {
            let _ = writeln!(
                text,
                "| `{}` | `{}` | `{}` | {} | {} | {} |",
                parameter.variable(),
                parameter.name,
                parameter.default(),
                parameter.unit,
                parameter.range(),
                parameter.meaning,
            );
        }
        text.push('\n');
    }
    text.push_str("## How to join\n\n| Variable | Meaning |\n| --- | --- |\n");
    for (variable, meaning) in OF_JOINING {
        let _ = writeln!(text, "| `{variable}` | {meaning} |");
    }
    text.push('\n');
    text.push_str("## Set by `samite run` for its ranks\n\n| Variable | Meaning |\n| --- | --- |\n");
    for (variable, meaning) in OF_THE_LAUNCHER {
        let _ = writeln!(text, "| `{variable}` | {meaning} |");
    }
    text
}

fn reader(reader: Reader) -> &'static str {
    match reader {
        Reader::Rank => "rank",
        Reader::Launcher => "samite run",
    }
}

fn reach(reach: Reach) -> &'static str {
    match reach {
        Reach::None => "no",
        Reach::Shared => "shared",
        Reach::Any => "any",
    }
}

fn yes(holds: bool) -> &'static str {
    if holds { "yes" } else { "no" }
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).into()
}

/// Formats rows as columns of the necessary width.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<_> = (0..columns)
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        let _ = writeln!(text, "  {}", cells.join("  ").trim_end());
    }
    text
}
