//! The README and the guide's pages. Their Rust code is compiled as doc tests, and run unless it needs a launcher.

#![forbid(unsafe_code)]

macro_rules! pages {
    ($($name:ident = $file:literal),* $(,)?) => {
        $(#[cfg(doctest)] #[doc = include_str!(concat!("../pages/", $file))] struct $name;)*
    };
}

pages! {
    Readme = "../../README.md",
    Introduction = "introduction.md",
    Install = "install.md",
    Hello = "hello.md",
    ComingFromMpi = "coming-from-mpi.md",
    Futures = "async.md",
    Communicators = "communicators.md",
    Collectives = "collectives.md",
    Choosing = "choosing.md",
    Partitioned = "partitioned.md",
    Windows = "windows.md",
    Layouts = "layouts.md",
    Values = "values.md",
    Checks = "checks.md",
    Transports = "transports.md",
    Launchers = "launchers.md",
    Failures = "failures.md",
    Survivors = "survivors.md",
    Tuning = "tuning.md",
    HowItWorks = "how-it-works.md",
    Matching = "matching.md",
}
