//! The compiler's hints for types that cannot be sent.

use std::path::PathBuf;
use std::process::Command;
use std::time::SystemTime;

/// Returns the compiler's errors for a wrong program that uses this crate.
fn errors_of(name: &str, program: &str) -> String {
    compile(name, program).expect_err("it compiles")
}

fn compile(name: &str, program: &str) -> Result<(), String> {
    let source = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.rs"));
    std::fs::write(&source, program).unwrap();
    // The newest library beside this test's executable is the one with which the test was linked, or a later build.
    let executable = std::env::current_exe().unwrap();
    let libraries = executable.parent().unwrap();
    let found = std::fs::read_dir(libraries).unwrap().map(|entry| entry.unwrap().path());
    let built = |path: &PathBuf| -> SystemTime { path.metadata().and_then(|data| data.modified()).unwrap() };
    let library = found
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.strip_prefix("libsamite-").is_some_and(|rest| rest.ends_with(".rlib"))
        })
        .max_by_key(built)
        .expect("the library was built for this test");
    let output = Command::new("rustc")
        .args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata", "--color", "never"])
        .arg("--out-dir")
        .arg(env!("CARGO_TARGET_TMPDIR"))
        .arg("-L")
        .arg(format!("dependency={}", libraries.display()))
        .arg("--extern")
        .arg(format!("samite={}", library.display()))
        .arg(&source)
        .output()
        .unwrap();
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

#[test]
fn an_error_names_the_missing_derives_of_a_struct() {
    let program = r"
        #[derive(Clone, Copy)]
        #[repr(C)]
        pub struct Particle { pub mass: f64 }
        pub fn send(world: &samite::Comm, particles: &[Particle]) -> Result<(), samite::Error> {
            world.send(particles, samite::Rank(1), 7)
        }
    ";
    let errors = errors_of("a_struct_without_the_derives", program);
    for hint in [
        "values of type `Particle` cannot be sent or received as bytes",
        "`FromBytes`, `IntoBytes`, `Immutable` of `samite::zerocopy`",
        r#"`#[zerocopy(crate = "samite::zerocopy")]`"#,
    ] {
        assert!(errors.contains(hint), "without `{hint}`: {errors}");
    }
}

#[test]
fn an_operation_of_another_scope_is_refused() {
    let right = "pub fn f(a: &samite::Comm) -> Result<samite::Status, samite::Error> {
        a.scope(|scope| { let sent = scope.isend(&[1u8], samite::Rank(0), 7)?; scope.wait(sent) })
    }";
    assert_eq!(compile("scope_right", right), Ok(()));
    // Each body waits for a request in a wrong scope: for a request of an inner scope in the outer scope, for a request
    // of the outer scope in an inner scope, and for a request in a scope of another communicator.
    for (name, body) in [
        (
            "out",
            "let sent = a.scope(|scope| scope.isend(&[1u8], samite::Rank(0), 7))?; a.scope(|scope| scope.wait(sent))?;",
        ),
        (
            "inner",
            "a.scope(|outer| { let sent = outer.isend(&[1u8], samite::Rank(0), 7)?; a.scope(|inner| inner.wait(sent)) })?;",
        ),
        (
            "other",
            "a.scope(|outer| { let sent = outer.isend(&[1u8], samite::Rank(0), 7)?; b.scope(|inner| inner.wait(sent)) })?;",
        ),
        (
            "tested",
            "a.scope(|outer| { let mut sent = outer.isend(&[1u8], samite::Rank(0), 7)?; b.scope(|inner| inner.test(&mut sent).transpose()) })?;",
        ),
        (
            "cancelled",
            "a.scope(|outer| { let sent = outer.isend(&[1u8], samite::Rank(0), 7)?; b.scope(|inner| Ok(inner.cancel(&sent))) })?;",
        ),
    ] {
        let program = format!(
            "pub fn f(a: &samite::Comm, b: &samite::Comm) -> Result<(), samite::Error> {{ let _ = b; {body} Ok(()) }}"
        );
        let errors = errors_of(&format!("scope_{name}"), &program);
        assert!(errors.contains("lifetime") || errors.contains("borrowed data escapes"), "{name}: {errors}");
    }
}

#[test]
fn a_tag_in_the_place_of_a_rank_is_refused() {
    let program = |call: &str| {
        format!(
            "use samite::Rank;
            pub fn f(a: &samite::Comm) {{ a.scope(|scope| Ok({{ let _ = {call}; }})).unwrap(); }}"
        )
    };
    for (name, right, swapped) in [
        ("send", "a.send(&[1u8], Rank(1), 7)", "a.send(&[1u8], 7, Rank(1))"),
        ("isend", "a.isend(vec![1u8], Rank(1), 7)", "a.isend(vec![1u8], 7, Rank(1))"),
        ("recv", "a.recv(&mut [0u8], Rank(1), 7)", "a.recv(&mut [0u8], 7, Rank(1))"),
        ("recv_vec", "a.recv_vec::<u8>(Rank(1), 7)", "a.recv_vec::<u8>(7, Rank(1))"),
        ("irecv", "a.irecv(vec![0u8], Rank(1), 7)", "a.irecv(vec![0u8], 7, Rank(1))"),
        ("probe", "a.probe(Rank(1), 7)", "a.probe(7, Rank(1))"),
        ("claim", "a.claim(Rank(1), 7)", "a.claim(7, Rank(1))"),
        ("begin", "scope.isend(&[1u8], Rank(1), 7)", "scope.isend(&[1u8], 7, Rank(1))"),
        // The wrong calls pass two numbers. A rank must have the type `Rank`, so that it cannot be confused with the
        // tag.
        ("numbers", "a.send(&[1u8], Rank(1), 7)", "a.send(&[1u8], 1, 7)"),
        ("from", "a.recv(&mut [0u8], Rank(1), 7)", "a.recv(&mut [0u8], 1, 7)"),
    ] {
        assert_eq!(compile(&format!("rank_{name}_right"), &program(right)), Ok(()), "{right}");
        let errors = errors_of(&format!("rank_{name}_swapped"), &program(swapped));
        assert!(errors.contains("Rank") && errors.contains(swapped), "{swapped}: {errors}");
    }
}

/// Bodies of functions that the compiler refuses, each with a part of its error.
const WRONG: &[(&str, &str, &str)] = &[
    ("scopes_swapped", "a.scope(|x| b.scope(|y| { std::mem::swap(x, y); Ok(()) }))?;", "E0521"),
    ("scope_kept", "let mut kept = None; a.scope(|x| { kept = Some(x); Ok(()) })?;", "E0521"),
    (
        "set_kept",
        "let mut set = samite::PendingSet::default(); a.scope(|x| { set.insert(x.isend(&[1u8], R, 7)?); Ok(()) })?;",
        "escape",
    ),
    ("buffer_too_short", "a.scope(|x| { let data = [1u8]; x.isend(&data, R, 7)?; Ok(()) })?;", "E0597"),
    (
        "buffer_read",
        "let mut d = [0u8]; a.scope(|x| { x.irecv(&mut d, R, 7)?; println!(\"{}\", d[0]); Ok(()) })?;",
        "E0502",
    ),
    (
        "buffer_twice",
        "let mut d = [0u8]; a.scope(|x| { x.irecv(&mut d, R, 7)?; x.irecv(&mut d, R, 8)?; Ok(()) })?;",
        "E0499",
    ),
    ("buffer_changed", "let mut d = [0u8]; a.scope(|x| { x.isend(&d, R, 7)?; d[0] = 1; Ok(()) })?;", "E0506"),
    ("buffer_borrowed", "let d = vec![0u8]; let _ = a.isend(&d[..], R, 7)?;", "E0277"),
    ("buffer_shared", "let d: std::sync::Arc<[u8]> = [0; 8].into(); let _ = a.irecv(d, R, 7)?;", "E0277"),
    ("buffer_sent", "let d = vec![0u8]; let _ = a.isend(d, R, 7)?; drop(d);", "E0382"),
    ("waited_twice", "let r = a.irecv(vec![0u8], R, 7)?; let _ = r.wait(); let _ = r.wait();", "E0382"),
    (
        "waited_in_a_set",
        "let mut s = a.request_set(); let r = a.irecv(vec![0u8], R, 7)?; s.insert(r).unwrap(); let _ = r.wait();",
        "E0382",
    ),
    ("message_twice", "let m = a.claim(R, 7)?; let _ = m.recv::<u8>(); let _ = m.recv::<u8>();", "E0382"),
    (
        "part_twice",
        "let s = a.psend_init(vec![0u8], 1, R, 7)?; let p = s.part(0)?; p.ready(); p.ready();",
        "E0382",
    ),
    (
        "part_late",
        "let s = a.psend_init(vec![0u8], 1, R, 7)?; let mut p = s.part(0)?; p.ready(); p[0] = 1;",
        "E0382",
    ),
    (
        "partition_kept",
        "let mut r = a.precv_init(vec![0u8], 1, R, 7)?; let p = r.partition(0)?; r.start()?; drop(p);",
        "E0502",
    ),
    (
        "round_kept",
        "let mut r = a.recv_init(vec![0u8], R, 7)?; let d = r.buffer()?; r.start()?; drop(d.len());",
        "E0502",
    ),
    ("creation_twice", "let c = a.idup()?; let _ = c.wait(); let _ = c.wait();", "E0382"),
    ("received_booleans", "a.recv(&mut [true], R, 7)?;", "`recv_checked`"),
    ("references", "a.send(&[&1u8], R, 7)?;", "cannot be sent or received as bytes"),
    ("strings", "a.send(&[String::new()], R, 7)?;", "cannot be sent or received as bytes"),
    (
        "set_of_two_types",
        "let mut s = a.request_set(); let _ = s.insert(a.irecv(vec![0u8], R, 7)?); let _ = s.insert(a.irecv(vec![0u16], R, 7)?);",
        "E0308",
    ),
    ("started_request", "let mut r = a.irecv(vec![0u8], R, 7)?; samite::start_all(&mut [&mut r])?;", "E0277"),
    ("callback_that_borrows", "let mut n = 0; a.irecv(vec![0u8], R, 7)?.on_end(|_| n += 1);", "E0373"),
    (
        "callback_of_one_thread",
        "let n = std::rc::Rc::new(0); a.irecv(vec![0u8], R, 7)?.on_end(move |_| drop(n));",
        "E0277",
    ),
    (
        "attribute_of_one_thread",
        "struct N(std::rc::Rc<u8>); impl samite::Attribute for N {} a.set_attribute(N(Default::default()));",
        "E0277",
    ),
    ("errors_to_come", "match a.send(&[1u8], R, 7) { Ok(()) | Err(samite::Error::Deserted) => {} }", "E0004"),
    (
        "world_left",
        "let w = samite::init().unwrap(); let c = w.comm(); let _ = w.leave(); let _ = c.rank();",
        "E0505",
    ),
    ("persistent_by_others", "struct P; impl samite::Persistent for P {}", "E0277"),
    ("buffer_by_others", "struct B; impl samite::Buffer for B {}", "E0277"),
];

#[test]
fn wrong_programs_are_refused_for_their_reason() {
    let program = |body: &str| {
        format!(
            "const R: samite::Rank = samite::Rank(0);
            #[allow(warnings)]
            pub fn f(a: &samite::Comm, b: &samite::Comm) -> Result<(), samite::Error> {{ {body} Ok(()) }}"
        )
    };
    assert_eq!(compile("wrong_nothing", &program("a.send(&[1u8], R, 7)?;")), Ok(()));
    let errors = WRONG.iter().map(|(name, body, _)| compile(&format!("wrong_{name}"), &program(body)));
    let reasons = errors.zip(WRONG).filter_map(|(result, (name, _, reason))| match result {
        Ok(()) => Some(format!("{name} compiles")),
        Err(errors) => (!errors.contains(reason)).then(|| format!("{name}, without `{reason}`: {errors}")),
    });
    let reasons: Vec<_> = reasons.collect();
    assert!(reasons.is_empty(), "{}", reasons.join("\n"));
}
