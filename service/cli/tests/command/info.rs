//! `samite info`, and the command's information about itself.

use serde_json::Value;

use crate::{samite, stdout};

#[test]
fn parameters_come_with_value_and_origin() {
    let output = samite("info --parameters --json").env("SAMITE_EAGER_MAX", "4K").output().unwrap();
    let answer: Value = serde_json::from_str(stdout(&output)).unwrap();
    let parameters = answer["parameters"].as_array().unwrap();
    let eager_max = parameters.iter().find(|row| row["name"] == "eager_max").unwrap();
    assert_eq!(eager_max["value"], "4096");
    assert_eq!(eager_max["origin"], "environment");
    assert_eq!(parameters.iter().filter(|row| row["origin"] == "environment").count(), 1);

    let page = samite("info --markdown").env("SAMITE_EAGER_MAX", "nonsense").output().unwrap();
    for row in parameters {
        let cell = format!("| `{}` |", row["variable"].as_str().unwrap());
        assert!(stdout(&page).contains(&cell), "{cell}");
    }
}

#[test]
fn the_guide_has_the_table_of_parameters() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pages/parameters.md");
    let told = samite("info --markdown").output().unwrap();
    assert!(
        std::fs::read_to_string(page).unwrap() == stdout(&told),
        "a parameter has changed: `samite info --markdown > docs/pages/parameters.md`"
    );
}

#[test]
fn the_environment_decides_how_messages_go() {
    let output = samite("info --protocols --peers --json").env("SAMITE_EAGER_MAX", "1000").output().unwrap();
    let answer: Value = serde_json::from_str(stdout(&output)).unwrap();
    let bands = answer["protocols"].as_array().unwrap();
    assert!(bands.iter().any(|band| band["transport"] == "samite-shm" && band["from"] == 1001), "{bands:?}");
    let path = answer["peers"][0]["path"].as_str().unwrap();
    assert!(path.starts_with("samite-shm: it is on this host"), "{path}");

    let mut tcp = samite("run -n 3 --transport tcp;ofi_rxm --");
    let output = tcp.args([env!("CARGO_BIN_EXE_samite"), "info", "--peers"]).output().unwrap();
    let lines = stdout(&output).lines().filter(|line| line.contains(": tcp;ofi_rxm: it has an address"));
    assert_eq!(lines.count(), 6);
}

#[test]
fn collective_calls_come_with_algorithm_and_cost() {
    let mut info = samite("info --collectives -n 6 --bytes 4096 --no-board --schedule bcast --json");
    let output = info.env("SAMITE_COLL_ALGORITHMS", "allreduce=ring,allgather=recursive-doubling").output();
    let answer: Value = serde_json::from_str(stdout(&output.unwrap())).unwrap();
    let of = |call: &str| {
        let calls = answer["collectives"].as_array().unwrap();
        calls.iter().find(|of| of["call"] == call).unwrap().clone()
    };
    assert_eq!(of("allreduce")["why"], "Ring for 4096 bytes and 6 ranks: it was selected");
    assert_eq!(of("allreduce")["rounds"], 10, "2(n - 1)");
    assert!(of("allgather")["why"].as_str().unwrap().contains("RecursiveDoubling cannot carry out"));
    assert_eq!((&of("bcast")["rounds"], &of("bcast")["most_sent"]), (&3.into(), &(3 * 4096).into()));
    assert_eq!(of("barrier")["most_sent"], 0);
    let of_rank_5 = &answer["schedule"]["ranks"][5];
    assert_eq!(of_rank_5[0], "receive output[0..4096] from rank 4, round 0");

    let of_host = |variable: &str, value: &str| {
        let mut info = samite("info --schedule bcast -n 6 --bytes 4096");
        stdout(&info.env(variable, value).output().unwrap()).to_owned()
    };
    let on_board = of_host("SAMITE_BOARD_MAX", "1M");
    assert!(on_board.contains("  rank 5\n    fetch output[0..4096] from rank 0, piece 0"), "{on_board}");
    let without_room = of_host("SAMITE_BOARD_MAX", "0");
    assert!(without_room.contains("receive output[0..4096] from rank 4, round 0"), "{without_room}");

    let mut info =
        samite("info --collectives -n 6 --ranks-per-host 4 --bytes 64 --schedule allreduce --json");
    let answer: Value =
        serde_json::from_str(stdout(&info.env_remove("SAMITE_BOARD_MAX").output().unwrap())).unwrap();
    let calls = answer["collectives"].as_array().unwrap();
    let allreduce = calls.iter().find(|of| of["call"] == "allreduce").unwrap();
    assert_eq!(
        allreduce["why"],
        "TwoLevels for 64 bytes and 6 ranks (RecursiveDoubling between 2 hosts, and within a host on its board): the \
         first suitable row of the table is for at most 65536 bytes and any number of ranks"
    );
    let stages = [
        "reduce within each host: the board of the host",
        "allreduce between the leaders: messages, RecursiveDoubling",
        "bcast within each host: the board of the host",
    ];
    assert_eq!(allreduce["stages"], serde_json::json!(stages));
    assert_eq!(answer["schedule"]["ranks"][5][0], "publish input[0..64], piece 0");
    let text = samite("info --collectives -n 6 --ranks-per-host 4 --no-board").output().unwrap();
    let text = stdout(&text);
    assert!(text.contains("6 ranks with 4 on a host, without a shared board within a host"), "{text}");
    assert!(text.contains("gather within each host: messages along a binomial tree"), "{text}");

    let wrong = samite("info --schedule dance").output().unwrap();
    let stderr = String::from_utf8_lossy(&wrong.stderr);
    assert!(!wrong.status.success() && stderr.contains("the calls are scan, exscan, barrier"), "{stderr}");
    let wrong = samite("info --collectives").env("SAMITE_COLL_ALGORITHMS", "bcast=fast").output().unwrap();
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("`bcast=scatter-allgather`"));
}

#[test]
fn the_default_between_hosts_is_explained() {
    let output = samite("info --providers --json").output().unwrap();
    let answer: Value = serde_json::from_str(stdout(&output)).unwrap();
    let rows = answer["transports"].as_array().unwrap();
    let explained = |name: &str| {
        let row = rows.iter().find(|row| row["transport"] == name);
        row.unwrap_or_else(|| panic!("no {name} in {answer:#}"))["default_between_hosts"].clone()
    };
    assert_eq!(explained("tcp;ofi_rxm"), "yes");
    assert!(explained("sockets").as_str().unwrap().starts_with("no: memory"));
    assert!(explained("samite-shm").is_null());
    let text = samite("info --providers").output().unwrap();
    assert!(stdout(&text).contains("    tcp;ofi_rxm: yes\n"), "{}", stdout(&text));
}

#[test]
fn thresholds_come_with_their_origin() {
    let file = std::env::temp_dir().join(format!("samite-tuning-{}", std::process::id()));
    let version = env!("CARGO_PKG_VERSION");
    let text = format!(
        "[\"samite-shm\"]\nsamite = \"{version}\"\neager_max = 2000\nread_min = 3000\nstream_max = 4000\n\
         [\"tcp;ofi_rxm\"]\nlibfabric = \"0.1\"\nstream_max = 5000\n\
         [\"samite-shn\"]\nsamite = \"{version}\"\n"
    );
    std::fs::write(&file, text).unwrap();
    let info = |args: &str| {
        let mut command = samite(&format!("info {args}"));
        command.env("SAMITE_TUNING", &file).env("SAMITE_STREAM_MAX", "6000");
        command.output().unwrap()
    };
    let output = info("--protocols --json");
    let answer: Value = serde_json::from_str(stdout(&output)).unwrap();
    let threshold = |parameter: &str| {
        let mut rows = answer["thresholds"].as_array().unwrap().iter();
        let row = rows.find(|row| row["transport"] == "samite-shm" && row["parameter"] == parameter).unwrap();
        (row["bytes"].as_u64().unwrap(), row["origin"].as_str().unwrap())
    };
    assert_eq!(threshold("eager_max"), (2000, "tuning file"));
    assert_eq!(threshold("read_min"), (3000, "tuning file"));
    assert_eq!(threshold("stream_max"), (6000, "environment"));
    assert_eq!(answer["ignored_tunings"][0]["transport"], "tcp;ofi_rxm");
    let output = info("--protocols");
    let text = stdout(&output);
    assert!(
        text.contains("thresholds for tcp;ofi_rxm are ignored: they were measured with libfabric 0.1"),
        "{text}"
    );
    assert!(text.contains("thresholds for samite-shn, which is none of these transports"), "{text}");

    std::fs::write(&file, "[\"samite-shm\"]\neager = 5\n").unwrap();
    for command in ["info", "run -n 1 -- true"] {
        let output = samite(command).env("SAMITE_TUNING", &file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(", line 2: `eager` is no parameter"), "{said}");
    }
    std::fs::remove_file(file).unwrap();
}

#[test]
fn the_topology_is_that_of_hwloc() {
    let imagined = "package:2 [numa(memory=1GB)] core:2 pu:2";
    let output = samite("info --topology --json").env("HWLOC_SYNTHETIC", imagined).output().unwrap();
    let answer: Value = serde_json::from_str(stdout(&output)).unwrap();
    let cores = answer["topology"]["cores"].as_array().unwrap();
    let last = serde_json::json!({ "processors": [6, 7], "numa_node": 1, "package": 1 });
    assert_eq!((cores.len(), &cores[3]), (4, &last));
    assert_eq!(answer["topology"]["numa_nodes"][1]["memory"], 1_000_000_000);

    let output = samite("info --topology").output().unwrap();
    let text = stdout(&output);
    assert!(text.contains("NUMA NODE") && text.contains("This process may use "), "{text}");
}

#[test]
fn versions_completions_and_pages() {
    let version = samite("--version").output().unwrap();
    let lines: Vec<_> = stdout(&version).lines().collect();
    assert_eq!(lines[0], concat!("samite ", env!("CARGO_PKG_VERSION")));
    assert!(lines[1].starts_with("libfabric "), "{lines:?}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(stdout(&samite(&format!("completions {shell}")).output().unwrap()).contains("on-failure"));
    }
    let folder = std::env::temp_dir().join(format!("samite-pages-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let output = samite("man").arg(&folder).output().unwrap();
    assert_eq!(stdout(&output), "");
    let page = std::fs::read_to_string(folder.join("samite-run.1")).unwrap();
    assert!(page.contains("\\-\\-on\\-failure"), "{page}");
    assert!(!folder.join("samite-agent.1").exists(), "it is not for users");
    std::fs::remove_dir_all(folder).unwrap();
}
