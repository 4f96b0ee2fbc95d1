"""Runs real tools that fail (and a few that do not) and records what they print.

Prints one JSON object a line: {"name","log","text","expect"}; heldout.py makes cases of them. The
tools are Debian's and Rust's, run offline in a folder of their own.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys

FOLDER = "/tmp/app"
PRELUDE = f"""
cd {FOLDER}
export LC_ALL=C HOME={FOLDER} GIT_CONFIG_NOSYSTEM=1 CARGO_TERM_COLOR=never NO_COLOR=1
export GIT_AUTHOR_NAME=u GIT_AUTHOR_EMAIL=u@example.com GIT_COMMITTER_NAME=u GIT_COMMITTER_EMAIL=u@example.com
"""
C_FILES = "for n in alpha beta gamma delta epsilon zeta eta theta; do printf 'int %s(int x){ int unused_%s; return x+1; }\\n' $n $n > $n.c; done; "
MAKEFILE = r"""printf 'OBJS=alpha.o beta.o gamma.o delta.o epsilon.o zeta.o eta.o theta.o main.o\napp: $(OBJS)\n\tcc -o app $(OBJS)\n%%.o: %%.c\n\tcc -Wall -O2 -c $< -o $@\n' > Makefile; """

PACKAGE = "mkdir -p src; printf '[package]\\nname = \"demo\"\\nversion = \"0.1.0\"\\nedition = \"2024\"\\n' > Cargo.toml; "

# name of the log, what is run, what a right answer quotes (None: nothing is wrong).
RUNS = [
    ("make.log", C_FILES + MAKEFILE + "echo 'int main(void){ return alpha(1) }' > main.c; make", "error: expected ';' before '}' token"),
    ("make-link.log", C_FILES + MAKEFILE + "echo 'int omega(int); int main(void){ return omega(1); }' > main.c; make", "undefined reference to `omega'"),
    ("make-ok.log", C_FILES + MAKEFILE + "echo 'int main(void){ return 0; }' > main.c; make", None),
    ("cc.log", "printf '#include <stdio.h>\\nint main(void){\\n  printf(\"%d\\\\n\", count);\\n  return 0;\\n}\\n' > a.c; gcc -Wall a.c", "error: 'count' undeclared (first use in this function)"),
    ("header.txt", "printf '#include \"missing_header.h\"\\nint main(void){return 0;}\\n' > b.c; gcc -v -c b.c 2>&1 | tail -n 18", "fatal error: missing_header.h: No such file or directory"),
    ("cxx.log", "printf '#include <vector>\\nint main(){ std::vector<int> v; v.push(3); }\\n' > c.cc; g++ -Wall -c c.cc", "has no member named 'push'"),
    ("cxx-types.log", "printf '#include <string>\\nint f(std::string s){ return s; }\\n' > d.cc; g++ -c d.cc", "cannot convert 'std::string'"),
    ("link.log", "printf 'int main(void){return 0;}\\n' > e.c; gcc -v e.c -lnosuchlibrary 2>&1 | tail -n 6 | cut -c1-400", "cannot find -lnosuchlibrary"),
    ("as.log", "printf '.text\\nmain:\\n  movq %%rax, %%rbx\\n  frobnicate %%rax\\n  ret\\n' > f.s; as f.s -o f.o", "Error: no such instruction: `frobnicate %rax'"),
    ("assert.log", "printf '#include <assert.h>\\n#include <stdio.h>\\nint main(void){ for(int i=0;i<40;i++) fprintf(stderr,\"case %%d ok\\\\n\",i); int n=3; assert(n==4); }\\n' > g.c; gcc g.c -o g && ./g", "Assertion `n==4' failed."),
    ("asan.log", "printf '#include <stdlib.h>\\nint main(int c,char**v){ int*p=malloc(4*4); return p[4+c]; }\\n' > h.c; gcc -g -fsanitize=address h.c -o h && ./h 2>&1 | head -n 24", "ERROR: AddressSanitizer: heap-buffer-overflow"),
    ("valgrind.log", "printf '#include <stdlib.h>\\nint main(void){ int*p=malloc(16); p[4]=1; return 0; }\\n' > v.c; gcc -g v.c -o v && valgrind ./v", "Invalid write of size 4"),
    ("rustc.log", "printf 'fn main() {\\n    let x: u32 = \"five\";\\n    println!(\"{}\", x);\\n}\\n' > a.rs; rustc a.rs", "error[E0308]: mismatched types"),
    ("borrow.log", "printf 'fn main() {\\n    let v = vec![1];\\n    let w = v;\\n    let unused = 3;\\n    println!(\"{:?} {:?}\", v, w);\\n}\\n' > b.rs; rustc b.rs", "error[E0382]: borrow of moved value: `v`"),
    ("panic.log", "printf 'fn main() {\\n    for i in 0..60 { println!(\"item {i} of the list was checked\"); }\\n    let v = vec![1, 2, 3];\\n    let i = v.len() + 4;\\n    println!(\"{}\", v[i]);\\n}\\n' > p.rs; rustc p.rs && ./p", "index out of bounds: the len is 3 but the index is 7"),
    ("cargo.log", PACKAGE + "printf 'fn main() { greet(); }\\n' > src/main.rs; cargo build --offline", "error[E0425]: cannot find function `greet` in this scope"),
    ("cargo-test.log", PACKAGE + "printf '#[cfg(test)]\\nmod tests {\\n' > src/lib.rs; for i in $(seq 1 22); do printf '    #[test]\\n    fn adds_%s() { assert_eq!(%s + 1, %s); }\\n' $i $i $((i==17 ? 99 : i+1)) >> src/lib.rs; done; printf '}\\n' >> src/lib.rs; cargo test --offline -- --test-threads 1", "adds_17"),
    ("cargo-toml.log", PACKAGE + "printf '[package]\\nname = \"demo\"\\nversion = \"0.1.0\"\\nedition = \"2077\"\\n' > Cargo.toml; cargo build --offline", "error: failed to parse manifest"),
    ("clippy.log", PACKAGE + "printf 'fn main() {\\n    let x = 5;\\n    let y = x / 0;\\n    println!(\"{y}\");\\n}\\n' > src/main.rs; cargo build --offline", "error: this operation will panic at runtime"),
    ("traceback.log", "printf 'import json\\ndef load(p):\\n    return json.loads(p)\\nfor i in range(30):\\n    print(\"loaded row\", i)\\nload(\"{bad}\")\\n' > a.py; python3 -u a.py", "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    ("import.err", "printf 'import numby\\n' > b.py; python3 -X importtime b.py 2>&1 | tail -n 14", "ModuleNotFoundError: No module named 'numby'"),
    ("keyerror.txt", "printf 'config = dict(host=1, port=2)\\nfor k in (\"host\", \"port\", \"user\"):\\n    print(k, config[k])\\n' > c.py; python3 -u c.py", "KeyError: 'user'"),
    ("syntax.log", "printf 'def f(:\\n    pass\\n' > d.py; python3 d.py", "SyntaxError: invalid syntax"),
    ("unittest.log", "printf 'import unittest\\nclass T(unittest.TestCase):\\n' > test_it.py; for i in $(seq 1 18); do printf '    def test_%02d(self): self.assertEqual(%s, %s)\\n' $i $i $((i==12 ? 7 : i)) >> test_it.py; done; python3 -m unittest -v test_it", "AssertionError: 12 != 7"),
    ("doctest.log", "printf 'def f():\\n    \"\"\"\\n    >>> f()\\n    4\\n    \"\"\"\\n    return 3\\nimport doctest; doctest.testmod()\\n' > e.py; python3 e.py", "Failed example:"),
    ("pytest.log", "printf 'import pytest\\n@pytest.mark.parametrize(\"n\", range(25))\\ndef test_ok(n): assert n >= 0\\ndef test_total():\\n    total = sum([1, 2, 3])\\n    assert total == 7\\n' > test_sum.py; $PYTHON -m pytest test_sum.py -p no:cacheprovider", "assert 6 == 7"),
    ("pytest-q.log", "printf 'def test_a(): pass\\ndef test_b():\\n    raise RuntimeError(\"no route to the database\")\\n' > test_db.py; $PYTHON -m pytest -q test_db.py -p no:cacheprovider", "RuntimeError: no route to the database"),
    ("pip.log", "$PYTHON -m pip install --no-index nosuchpackage==4.2", "Could not find a version that satisfies the requirement nosuchpackage==4.2"),
    ("node.log", "printf 'for (let i = 0; i < 40; i++) console.log(\"chunk\", i, \"written\");\\nconst user = undefined;\\nconsole.log(user.name);\\n' > a.js; node a.js", "TypeError: Cannot read properties of undefined (reading 'name')"),
    ("node-syntax.log", "printf 'const a = ;\\n' > b.js; node b.js", "SyntaxError: Unexpected token ';'"),
    ("node-test.log", "printf 'const test=require(\"node:test\"),assert=require(\"node:assert\");\\nfor(let i=0;i<9;i++)test(\"adds \"+i,()=>{assert.strictEqual(i, i===6?5:i)});\\n' > a.test.js; node --test --test-reporter=tap a.test.js", "not ok 7 - adds 6"),
    ("require.log", "node -e 'require(\"left-padding\")'", "Error: Cannot find module 'left-padding'"),
    ("npm-script.log", "printf '{\"name\":\"demo\",\"version\":\"1.0.0\",\"scripts\":{\"build\":\"node build.js\"}}' > package.json; printf 'console.log(\"bundling 14 modules\");\\nthrow new RangeError(\"chunk size 0 is not allowed\");\\n' > build.js; npm run build --no-update-notifier", "RangeError: chunk size 0 is not allowed"),
    ("npm-missing.log", "printf '{\"name\":\"demo\",\"version\":\"1.0.0\"}' > package.json; npm run deploy --no-update-notifier 2>&1 | grep -v _logs", "Missing script: \"deploy\""),
    ("javac.log", "printf 'class A {\\n  int f() { return \"x\"; }\\n  void g() { undefinedCall(); }\\n}\\n' > A.java; javac A.java", "error: incompatible types: String cannot be converted to int"),
    ("java.log", "printf 'class B { public static void main(String[] a) { for (int i=0;i<30;i++) System.out.println(\"record \"+i+\" imported\"); Object o=null; o.toString(); } }\\n' > B.java; javac B.java && java B", "java.lang.NullPointerException"),
    ("perl.log", "printf 'use strict;\\nmy $a = 1;\\nprint \"row $_\\\\n\" for 1..30;\\ndie \"ledger is out of balance by 12.50\";\\n' > a.pl; perl a.pl", "ledger is out of balance by 12.50 at a.pl line 4."),
    ("perl-syntax.log", "printf 'use strict;\\n$total = 1;\\n' > b.pl; perl b.pl", "Global symbol \"$total\" requires explicit package name"),
    ("git.log", "git status", "fatal: not a git repository"),
    ("merge.log", "git init -q -b main .; for i in $(seq 1 20); do echo $i > f$i.txt; done; git add .; git commit -qm a; git checkout -q -b side; echo side > f3.txt; git commit -qam b; git checkout -q main; echo main > f3.txt; git commit -qam c; git merge side", "CONFLICT (content): Merge conflict in f3.txt"),
    ("clone.log", "git clone file:///tmp/app/nowhere.git copy", "fatal: '/tmp/app/nowhere.git' does not appear to be a git repository"),
    ("apply.log", "git init -q .; echo one > a.txt; printf -- '--- a/a.txt\\n+++ b/a.txt\\n@@ -1 +1 @@\\n-two\\n+three\\n' > p.diff; git apply -v p.diff", "error: patch failed: a.txt:1"),
    ("patch.log", "for i in $(seq 1 12); do seq 1 9 > f$i.c; done; for i in $(seq 1 12); do printf -- '--- f%s.c\\n+++ f%s.c\\n@@ -3,1 +3,1 @@\\n-%s\\n+x\\n' $i $i $((i==8 ? 77 : 3)); done > all.diff; patch -p0 < all.diff", "Hunk #1 FAILED at 3."),
    ("tar.log", "for i in $(seq 1 40); do echo $i > member_$i.dat; done; tar cvf out.tar member_*.dat missing.dat", "tar: missing.dat: Cannot stat: No such file or directory"),
    ("gzip.log", "echo hello > x.txt; gzip -v x.txt; truncate -s 20 x.txt.gz; gzip -tv x.txt.gz; gzip -tv absent.gz", "gzip: x.txt.gz: unexpected end of file"),
    ("unzip.log", "echo not a zip > a.zip; unzip a.zip", "End-of-central-directory signature not found"),
    ("shell.log", "printf 'set -x\\nmkdir -p out\\nfor f in 1 2 3 4 5 6 7 8; do touch out/part$f; done\\ncp out/part1 out/copy\\nfrobnicate --all out\\nls out\\n' > run.sh; bash run.sh", "frobnicate: command not found"),
    ("cp.log", "mkdir -p in; for i in $(seq 1 30); do echo $i > in/f$i; done; cp -v in/* /tmp/app/dest/", "/tmp/app/dest"),
    ("find.log", "find /tmp/app/nosuchdir -name '*.log'", "find: '/tmp/app/nosuchdir': No such file or directory"),
    ("sqlite.log", "printf 'create table t(a);\\n.echo on\\ninsert into t values(1);\\ninsert into t values(2);\\nselect * from t;\\nselect b from t;\\n' | sqlite3 x.db", "no such column: b"),
    ("jq.log", "printf '{\"a\":1,}' | jq .", "parse error"),
    ("openssl.log", "echo garbage > k.pem; openssl x509 -in k.pem -noout", "Could not read certificate from k.pem"),
    ("curl.log", "curl -v http://127.0.0.1:9/health", "Failed to connect to 127.0.0.1 port 9"),
    ("wget.log", "wget http://127.0.0.1:9/file.tar.gz", "failed: Connection refused"),
    ("ssh.log", "ssh -v -o BatchMode=yes -o UserKnownHostsFile=/dev/null -p 9 user@127.0.0.1 2>&1 | tail -n 12", "connect to host 127.0.0.1 port 9: Connection refused"),
    ("psql.log", "psql -h 127.0.0.1 -p 9 -c 'select 1'", "Connection refused"),
    ("dpkg.log", "echo nothing > broken.deb; dpkg -i broken.deb", "dpkg-deb: error: 'broken.deb' is not a Debian format archive"),
    ("apt.log", "apt-get install -y -s surelynosuchpackage", "E: Unable to locate package surelynosuchpackage"),
    ("tcl.log", "printf 'for {set i 0} {$i < 25} {incr i} { puts \"step $i done\" }\\nset total [expr {1 / 0}]\\n' > a.tcl; tclsh a.tcl", "divide by zero"),
    ("gdb.log", "gdb -batch -ex run ./nothere", "./nothere: No such file or directory."),
    ("awk.log", "awk 'BEGIN { print \"rows\" ; x = (1 }'", "missing ) near }"),
    ("useradd.log", "useradd --shell /bin/sh 'bad name'", "useradd: invalid user name 'bad name'"),
    ("objdump.log", "echo text > t.o; objdump -d t.o", "file format not recognized"),
    ("gpg.log", "echo nothing > s.asc; gpg --homedir /tmp/app/gnupg --verify s.asc", "no valid OpenPGP data found"),
    ("xz.log", "echo plain > p.xz; xz -tv p.xz", "File format not recognized"),
    ("make-missing.log", "printf 'all: report.pdf\\nreport.pdf: chapter1.tex\\n\\ttrue\\n' > Makefile; make", "No rule to make target 'chapter1.tex', needed by 'report.pdf'"),
    ("ls-ok.log", "for i in $(seq 1 24); do echo $i > data_$i.csv; done; ls -l --time-style=+%F *.csv | cut -c1-10,20-", None),
    ("tar-ok.log", "for i in $(seq 1 30); do echo $i > page_$i.html; done; tar cvf site.tar page_*.html; gzip -v site.tar", None),
    ("cargo-ok.log", PACKAGE + "printf '#[cfg(test)]\\nmod tests {\\n' > src/lib.rs; for i in $(seq 1 15); do printf '    #[test]\\n    fn holds_%s() {}\\n' $i >> src/lib.rs; done; printf '}\\n' >> src/lib.rs; cargo test --offline --lib", None),
    ("unittest-ok.log", "printf 'import unittest\\nclass T(unittest.TestCase):\\n' > test_ok.py; for i in $(seq 1 20); do printf '    def test_%02d(self): self.assertTrue(True)\\n' $i >> test_ok.py; done; python3 -m unittest -v test_ok", None),
    ("git-ok.log", "git init -q -b main .; for i in $(seq 1 20); do echo $i > f$i.txt; git add .; git commit -qm \"change number $i of the series\"; done; git log --oneline --stat -n 12", None),
]  # fmt: skip


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--python", default="python3", help="an interpreter that has pytest and pip")
    options = arguments.parse_args()
    for log, script, expect in RUNS:
        shutil.rmtree(FOLDER, ignore_errors=True)
        os.mkdir(FOLDER)
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHON": options.python,
            "RUSTUP_HOME": os.path.expanduser("~/.rustup"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        result = subprocess.run(
            ["bash", "-c", PRELUDE + script],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            stdin=subprocess.DEVNULL,
            timeout=120,
            check=False,
        )
        # Where this machine keeps its Python is nobody's business.
        text = result.stdout.decode("utf-8", "strict").replace(sys.base_prefix, "/usr")
        print(json.dumps({"log": log, "text": text, "expect": expect}, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
