//! Tests of the command as scripts use it.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_samite-bench")).args(args).output().unwrap()
}

/// Returns the JSON objects that the command prints, one from each line.
fn records(args: &[&str]) -> Vec<Value> {
    let output = bench(args);
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the strings of the given columns.
fn columns<'a>(record: &'a Value, keys: &[&str]) -> Vec<&'a str> {
    keys.iter().map(|&key| record[key].as_str().unwrap()).collect()
}

fn assert_plausible(record: &Value) {
    let [median, min, max] = ["median", "min", "max"].map(|key| record[key].as_f64().unwrap());
    assert!(0.0 < min && min <= median && median <= max, "{record}");
}

#[test]
fn a_run_starts_two_ranks_and_prints_a_record_for_each_length() {
    let records = records(&["latency", "--transport", "samite-shm", "--bytes", "8,100000", "--json"]);
    assert_eq!(records.len(), 2);
    for (record, bytes) in records.iter().zip([8, 100_000]) {
        assert_eq!(columns(record, &["bench", "impl", "transport"]), ["latency", "samite", "samite-shm"]);
        assert_eq!(columns(record, &["metric", "unit"]), ["latency_us", "us"]);
        let numbers = ["ranks", "bytes", "runs"].map(|key| record[key].as_u64().unwrap());
        assert_eq!(numbers, [2, bytes, 1]);
        assert!(record["depth"].is_null());
        assert_plausible(record);
    }
}

#[test]
fn every_benchmark_runs_over_the_transport_that_samite_chooses() {
    for args in [
        &["bandwidth", "--bytes", "65536", "--json"][..],
        &["rate", "--json"],
        &["depth", "--depth", "16,300", "--pin", "--json"],
        &["ring", "--ranks", "3", "--json"],
        &["pairs", "--ranks", "4", "--bytes", "8,5000", "--json"],
        &["memory", "--ranks", "3", "--json"],
    ] {
        records(args).iter().for_each(assert_plausible);
    }
}

#[cfg(feature = "ofi")]
#[test]
fn libfabric_and_samite_are_compared_over_tcp() {
    let transport = "tcp;ofi_rxm";
    let args = ["compare", "latency", "--transport", transport, "--bytes", "8", "--runs", "2", "--json"];
    let mut records = records(&[&args[..], &["--without-peers"]].concat());
    let settings = records.remove(0);
    assert_eq!(settings["runs"], 2);
    assert_eq!(settings["commands"].as_array().map(Vec::len), Some(4));
    assert_eq!(records[0]["ratio"]["to"], "libfabric");
    let who: Vec<_> = records.iter().map(|record| columns(record, &["impl", "transport"])).collect();
    let names = ["samite", "samite-owned", "samite+shm", "libfabric"];
    assert_eq!(who, names.map(|name| [name, transport]));
    for record in &records {
        assert_eq!(record["runs"], 2);
        assert_plausible(record);
    }
}

#[test]
fn owned_buffers_are_measured_too() {
    for args in [&["latency", "--bytes", "8,100000"][..], &["bandwidth", "--bytes", "65536"]] {
        let records = records(&[args, &["--impl", "samite-owned", "--json"]].concat());
        assert!(records.iter().all(|record| record["impl"] == "samite-owned"));
        records.iter().for_each(assert_plausible);
    }
}

#[test]
fn the_thread_for_progress_is_compared_with_its_absence() {
    let args = ["overhead", "--transport", "samite-shm", "--bytes", "65536", "--runs", "1", "--json"];
    let lines = records(&[&args[..], &["--without-peers"]].concat());
    let records: Vec<_> = lines.iter().filter(|line| line.get("median").is_some()).collect();
    let benches: Vec<_> = records.iter().map(|record| record["bench"].as_str().unwrap()).collect();
    assert_eq!(benches[..5], ["latency", "latency", "latency", "latency", "sender-first"]);
    assert_eq!((benches.len(), benches[11]), (12, "receiver-first"));
    for pair in records.chunks(2) {
        let names = ["samite", "samite-owned"];
        let name = pair[0]["impl"].as_str().unwrap();
        assert!(names.contains(&name) && pair[0].get("ratio").is_none());
        assert_eq!(pair[1]["impl"], format!("{name}+progress"));
        assert_eq!(pair[1]["ratio"]["to"], name);
        pair.iter().for_each(|record| assert_plausible(record));
    }
}

#[test]
fn the_hidden_part_is_measured_for_both_owners_of_buffers() {
    let args = ["overlap", "--transport", "samite-shm", "--bytes", "262144", "--rounds", "2", "--json"];
    let records = records(&[&args[..], &["--without-peers"]].concat());
    let names: Vec<_> = records.iter().step_by(4).map(|record| record["impl"].as_str().unwrap()).collect();
    assert_eq!(names, ["samite", "samite+progress", "samite-owned", "samite-owned+progress"]);
    let benches =
        ["send-first-sender", "send-first-receiver", "receive-first-sender", "receive-first-receiver"];
    for (record, bench) in records.iter().zip(benches.iter().cycle()) {
        assert_eq!(record["bench"], format!("overlap-{bench}"));
        assert_eq!((&record["unit"], record["bytes"].as_u64()), (&"%".into(), Some(262_144)));
    }
}

#[test]
fn the_rest_of_collective_operations_is_measured() {
    let args = ["overlap", "--transport", "samite-shm", "--operation", "allreduce,alltoall,bcast", "-n", "3"];
    let records = records(&[&args[..], &["--rounds", "2", "--json", "--without-peers"]].concat());
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let seen: Vec<_> = records.iter().map(|record| [text(&record["bench"]), text(&record["impl"])]).collect();
    let expected = ["allreduce", "alltoall", "bcast"].map(|operation| {
        ["samite", "samite+progress"].map(|name| {
            let benches = [format!("overlap-{operation}"), format!("overlap-{operation}-wait")];
            benches.map(|bench| [bench, name.to_owned()])
        })
    });
    assert_eq!(seen, expected.as_flattened().as_flattened());
    for record in &records {
        assert_eq!((record["ranks"].as_u64(), record["bytes"].as_u64()), (Some(3), Some(262_144)));
        assert!(record["median"].as_f64().unwrap() > 0.0, "{record}");
    }
}

#[test]
fn the_thresholds_of_a_transport_are_written_and_read() {
    let file = std::env::temp_dir().join(format!("samite-bench-tuning-{}", std::process::id()));
    let name = file.display().to_string();
    let rest = ["--transport", "samite-shm", "--runs", "1", "--bytes", "256,8192,65536"];
    let output = bench(&[&["tune", &name][..], &rest].concat());
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut lines = text.lines().skip(2);
    assert_eq!(lines.next(), Some("[\"samite-shm\"]"));
    assert_eq!(lines.next(), Some(concat!("samite = \"", env!("CARGO_PKG_VERSION"), "\"")));
    let names: Vec<_> = lines.map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(names, ["eager_max", "stream_max", "read_min"]);

    // The ratios depend on the machine's other load.
    let output = bench(&[&["tune", "--check", &name][..], &rest].concat());
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(table.lines().count(), 2 + 2 * 3, "{table}");

    std::fs::write(&file, "[samite-shm]\n").unwrap();
    let output = bench(&[&["tune", "--check", &name][..], &rest].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(", line 1: a section is"), "{said}");
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_comparison_is_a_table_for_people() {
    let output = bench(&[
        "compare",
        "rate",
        "--transport",
        "samite-shm",
        "--impl",
        "samite",
        "--runs",
        "1",
        "--without-peers",
    ]);
    let table = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(table.lines().next(), Some("rate, rate_per_s: medians of 1 interleaved runs, not pinned"));
    assert_eq!(lines[1][0], "samite:");
    assert_eq!(lines[3][..4], ["samite-shm", "2", "8", "samite"]);
    assert_eq!(lines.len(), 4);
}

#[test]
fn comparisons_become_a_page() {
    let output = bench(&[
        "compare",
        "start-up",
        "--transport",
        "samite-shm",
        "--ranks",
        "2,3",
        "--runs",
        "2",
        "--without-peers",
        "--json",
    ]);
    assert!(output.status.success(), "{output:?}");
    let folder = std::env::temp_dir().join(format!("samite-bench-page-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let [figures, page] = ["figures.jsonl", "page.html"].map(|name| folder.join(name).display().to_string());
    std::fs::write(&figures, &output.stdout).unwrap();
    let output = bench(&["report", &figures, "--output", &page]);
    assert!(output.status.success(), "{output:?}");
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("<h2>start-up, samite-shm (ms)</h2>") && html.contains("<svg"), "{html}");

    std::fs::write(&figures, "{}\n").unwrap();
    let output = bench(&["report", &figures, "--output", &page]);
    assert!(String::from_utf8_lossy(&output.stderr).contains(":1: not a line of `compare --json`"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn misuse_is_reported_in_one_sentence() {
    for (args, message) in [
        (
            &["compare", "depth", "--transport", "samite-shm", "--without-peers", "--impl", "openmpi"][..],
            "samite-bench: no implementation openmpi for depth over samite-shm: there is samite\n",
        ),
        (&["latency", "--ranks", "3"], "samite-bench: latency is measured between 2 ranks, not 3"),
        (&["latency", "--transport", "no such", "--json"], "no such"),
    ] {
        let output = bench(args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && stderr.contains(message), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_kill_is_an_error_at_every_other_rank() {
    let records = records(&["failure", "--transport", "samite-shm", "--ranks", "3", "--runs", "2", "--json"]);
    assert_eq!(records.len(), 1);
    assert_eq!(
        columns(&records[0], &["bench", "transport", "metric", "unit"]),
        ["failure", "samite-shm", "error_ms", "ms"]
    );
    assert_eq!(["ranks", "runs"].map(|key| records[0][key].as_u64().unwrap()), [3, 2]);
    assert_plausible(&records[0]);
}

#[test]
fn epochs_of_windows_are_measured() {
    let args = ["rma", "epochs", "--bytes", "1048576", "--rounds", "1", "--without-peers", "--json"];
    // The exit code depends on the load of the machine.
    let output = bench(&args);
    let lines = String::from_utf8(output.stdout).unwrap();
    let records: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds = ["fence", "lock", "pair"]
        .map(|kind| ["accumulate", "get", "put"].map(|operation| format!("rma-epochs-{kind}-{operation}")));
    let seen: Vec<_> = records.iter().map(|record| columns(record, &["bench", "impl"])).collect();
    let variants = |bench: &String| ["blocking", "nonblocking"].map(|calls| (bench.clone(), calls));
    let expected: Vec<_> = kinds.as_flattened().iter().flat_map(variants).collect();
    assert_eq!(seen.len(), expected.len());
    for (seen, (bench, calls)) in seen.iter().zip(expected) {
        assert_eq!(*seen, [bench, format!("samite {calls}")]);
    }
    records.iter().for_each(assert_plausible);
}

#[test]
fn delays_are_measured_with_both_calls_and_with_both_hints() {
    for (measurement, variants) in
        [("patterns", ["blocking", "nonblocking"]), ("flags", ["without flag", "with flag"])]
    {
        let output = bench(&["rma", measurement, "--rounds", "1", "--json"]);
        let lines = String::from_utf8(output.stdout).unwrap();
        let records: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let ours = records.iter().filter(|record| record["transport"] != "qdr-ib");
        let names: Vec<_> = ours.map(|record| record["impl"].as_str().unwrap()).collect();
        assert_eq!(names.len(), 20, "five cases with two lengths: {lines}");
        assert!(names.chunks(2).all(|pair| pair == variants), "{names:?}");
    }
}

#[test]
fn a_decomposition_is_measured_over_both_transports() {
    let output = bench(&["rma", "lu", "--n", "40", "-n", "3", "--rounds", "1", "--json"]);
    // The exit code depends on the load of the machine. A wrong factor would end the job without figures.
    let lines = String::from_utf8(output.stdout).unwrap();
    let records: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<_> =
        records.iter().map(|record| columns(record, &["transport", "bench", "impl"])).collect();
    let figures = ["rma-lu-wait", "rma-lu-communication", "rma-lu-total"];
    let of = |transport| {
        let with = move |figure| ["blocking", "nonblocking"].map(|calls| vec![transport, figure, calls]);
        figures.into_iter().flat_map(with)
    };
    let expected: Vec<_> =
        ["samite-shm", "delay(2us,0.33ns/B)+samite-shm"].into_iter().flat_map(of).collect();
    assert_eq!(seen, expected, "{lines}");
    for record in &records {
        assert_eq!(["ranks", "depth"].map(|key| record[key].as_u64().unwrap()), [3, 40]);
        assert_plausible(record);
    }
    let over = ["rma", "lu", "--n", "2", "--rounds", "1", "--transport", "samite-shm", "--json"];
    let over = String::from_utf8(bench(&over).stdout).unwrap();
    assert_eq!(over.lines().count(), 6, "{over}");
}

#[test]
fn updates_in_virtual_time_take_the_same_time_again() {
    let args = ["rma", "transactions", "--virtual", "-n", "16", "--rounds", "2", "--json"];
    let first = records(&args);
    assert_eq!(first, records(&args));
    let names: Vec<_> = first.iter().map(|record| record["impl"].as_str().unwrap()).collect();
    let ours = ["", ", reordered", ", aggregated", ", both"].map(|variant| format!("nonblocking{variant}"));
    let theirs = ["blocking", "nonblocking, reordered"].map(|variant| format!("thesis {variant}"));
    assert_eq!(names[0], "blocking");
    assert_eq!(names[1..], [&ours[..], &theirs].concat());
    assert!(first.iter().all(|record| record["ranks"] == 16));
    first.iter().for_each(assert_plausible);
}

#[test]
fn arguments_of_windows_that_do_not_fit_are_refused() {
    for (args, word) in [
        (&["lag", "--virtual"][..], "--virtual"),
        (&["transactions", "--virtual", "--transport", "samite-shm"], "--transport"),
        (&["lu", "-n", "1"], "1 is not in 2.."),
        (&["lu", "--n", "0"], "0 is not in 1.."),
        (&["lu", "--rounds", "0"], "0 is not in 1.."),
    ] {
        let output = bench(&[&["rma"][..], args].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(word), "{args:?}: {error}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}
