//! Running other programs.

use std::env;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// A command without the variables by which `cargo run` told this program
/// about its own package: passed on, they make a nested cargo rebuild crates
/// whose build scripts look at them.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if is_of_running_package(&name) {
            command.env_remove(&*name);
        }
    }
    command
}

fn is_of_running_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_")
        || name.starts_with("CARGO_MANIFEST_")
        || matches!(
            name,
            "CARGO_BIN_NAME" | "CARGO_CRATE_NAME" | "CARGO_PRIMARY_PACKAGE"
        )
}

/// Runs a command on this terminal; an exit other than 0 is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| cannot_start(command))?;
    check(command, status)
}

/// Runs a command that tells by its exit whether something passed.
pub fn passes(command: &mut Command) -> Result<bool> {
    let status = command.status().with_context(|| cannot_start(command))?;
    Ok(status.success())
}

/// Runs a command and returns what it printed on standard output.
pub fn read(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| cannot_start(command))?;
    check(command, output.status)?;
    String::from_utf8(output.stdout)
        .with_context(|| format!("{} printed something that is not UTF-8", describe(command)))
}

/// Runs a command on this terminal for at most `limit`. `None` says that it
/// was ended because the time was over.
pub fn run_within(command: &mut Command, limit: Duration) -> Result<Option<ExitStatus>> {
    const POLL: Duration = Duration::from_millis(100);
    let start = Instant::now();
    let mut child = command.spawn().with_context(|| cannot_start(command))?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() >= limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

/// Runs a command and hands each line of its standard output to `line`, which
/// says whether the line is to be shown.
pub fn run_by_line(
    command: &mut Command,
    mut line: impl FnMut(&str) -> bool,
) -> Result<ExitStatus> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| cannot_start(command))?;
    let stdout = child
        .stdout
        .take()
        .context("the child has no standard output")?;
    for bytes in BufReader::new(stdout).split(b'\n') {
        let text = String::from_utf8_lossy(&bytes?).into_owned();
        if line(&text) {
            println!("{text}");
        }
    }
    Ok(child.wait()?)
}

/// The first executable file of this name in these directories.
pub fn find_program(name: &str, directories: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    directories
        .map(|directory| directory.join(name))
        .find(|path| is_executable(path))
}

/// The first executable file of this name on the search path.
pub fn find_on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    find_program(name, env::split_paths(&path))
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn check(command: &Command, status: ExitStatus) -> Result<()> {
    if !status.success() {
        bail!("{} failed ({status})", describe(command));
    }
    Ok(())
}

fn cannot_start(command: &Command) -> String {
    format!("cannot start {}", describe(command))
}

/// The command as a person would type it, for messages.
fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut text = program
        .file_name()
        .unwrap_or(program.as_os_str())
        .to_string_lossy()
        .into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_hangs_is_ended() {
        let ended = run_within(command("sleep").arg("60"), Duration::from_millis(50)).unwrap();
        assert!(ended.is_none());
        let finished = run_within(&mut command("true"), Duration::from_mins(1)).unwrap();
        assert!(finished.unwrap().success());
    }

    #[test]
    fn a_failure_names_the_command() {
        let error = run(command("/bin/false").arg("--flag")).unwrap_err();
        assert_eq!(error.to_string(), "false --flag failed (exit status: 1)");
        let error = run(&mut command("/no/such/program")).unwrap_err();
        assert_eq!(error.to_string(), "cannot start program");
    }

    #[test]
    fn lines_are_seen_as_they_are_printed() {
        let mut seen = Vec::new();
        let status = run_by_line(command("printf").arg("a\\nb"), |line| {
            seen.push(line.to_owned());
            false
        });
        assert!(status.unwrap().success());
        assert_eq!(seen, ["a", "b"]);
    }

    #[test]
    fn only_executable_files_are_programs() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("tool"), "").unwrap();
        let find = || find_program("tool", std::iter::once(directory.path().to_owned()));
        assert_eq!(find(), None);
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory.path().join("tool"), mode).unwrap();
        assert_eq!(find(), Some(directory.path().join("tool")));
    }
}
