/**
 * The box of `run_code` in a real container, with the security options that compose.yaml gives to gateways: started by
 * runc, which Docker and containerd start theirs with, from this machine's system in the place of an image.
 */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { cp, lstat, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parse } from "yaml";
import { findProgram } from "../support/brokers/programs.ts";
import { verifies } from "../support/verifies.ts";

const root = join(import.meta.dirname, "../..");
const run = promisify(execFile);

const runc = findProgram("runc");

function whyNot(): string | undefined {
  if (process.getuid?.() !== 0) return "starting a container needs root (sudo npm run test:container)";
  if (runc === undefined) return "runc is not installed (Debian: apt-get install runc)";
  if (findProgram("bwrap") === undefined) return "bubblewrap is not installed (Debian: apt-get install bubblewrap)";
  return existsSync("/usr/bin/python3") ? undefined : "there is no /usr/bin/python3";
}

const missing = whyNot();
if (missing !== undefined) console.log(`Skipped: the code box in a container; ${missing}.`);

/** What runs inside: one program in the code box of this checkout. */
const program = `
import { createCodeBox } from "${root}/packages/platform/src/local/code-box.ts";
import { createInterpreters } from "${root}/packages/platform/src/local/interpreters.ts";
import { findBubblewrap } from "${root}/packages/platform/src/local/plugin-wall.ts";
const path = "/usr/bin:/bin";
const box = createCodeBox({ path, interpreters: createInterpreters(path), bubblewrap: await findBubblewrap(path) });
const confined = { memoryBytes: 536870912, diskBytes: 67108864, maxProcesses: 64, maxFiles: 10, maxFileBytes: 1048576 };
const run = { tenant: "t", command: ["python3", "-"], environment: {}, stdin: "print(6 * 7)", timeoutMs: 30000, maxOutputBytes: 1000, confined };
console.log(JSON.stringify(await box.run(run).catch(({ code, message }) => ({ code, message }))));
`;

interface Options {
  readonly seccomp: object;
  /** The parts of /proc that engines mask are not. */
  readonly showsSystemPaths: boolean;
}

describe.skipIf(missing !== undefined)(`the code box in a container ${verifies("NATIVE-2")}`, () => {
  let directory: string;
  let ours: Options;

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), "toolyard-container-"));
    await mkdir(join(directory, "rootfs"));
    // Where it has its programs, most of a system is links into /usr.
    for (const name of ["bin", "sbin", "lib", "lib64"]) {
      if ((await lstat(`/${name}`).catch(() => undefined))?.isSymbolicLink() === true) {
        await cp(`/${name}`, join(directory, "rootfs", name), { verbatimSymlinks: true });
      }
    }
    const { services } = parse(await readFile(join(root, "compose.yaml"), "utf8")) as {
      readonly services: { readonly gateway: { readonly security_opt: readonly string[] } };
    };
    const options = services.gateway.security_opt;
    const profile = options.find((option) => option.startsWith("seccomp="))?.slice("seccomp=".length) ?? "";
    const { archMap, ...seccomp } = JSON.parse(await readFile(join(root, profile), "utf8"));
    const architectures = archMap.flatMap((one: { architecture: string; subArchitectures: readonly string[] }) => [
      one.architecture,
      ...one.subArchitectures,
    ]);
    ours = { seccomp: { ...seccomp, architectures }, showsSystemPaths: options.includes("systempaths=unconfined") };
  });
  afterAll(() => rm(directory, { recursive: true, force: true }));

  /** As the user of the image, without a capability, on a file system that is read only. */
  async function inContainer({ seccomp, showsSystemPaths }: Options): Promise<unknown> {
    await rm(join(directory, "config.json"), { force: true });
    await run(runc ?? "", ["spec"], { cwd: directory });
    const spec = JSON.parse(await readFile(join(directory, "config.json"), "utf8"));
    const bind = (path: string): object => ({
      destination: path,
      type: "bind",
      source: path,
      options: ["rbind", "ro"],
    });
    spec.process = {
      ...spec.process,
      terminal: false,
      args: [process.execPath, "--input-type=module", "-e", program],
      env: ["PATH=/usr/bin:/bin"],
      user: { uid: 1_000, gid: 1_000 },
      noNewPrivileges: true,
      capabilities: {},
      rlimits: [],
    };
    spec.root = { path: "rootfs", readonly: true };
    spec.mounts = [
      ...spec.mounts.filter(({ type }: { type: string }) => ["proc", "tmpfs", "devpts"].includes(type)),
      { destination: "/tmp", type: "tmpfs", source: "tmpfs", options: ["mode=1777"] },
      bind("/usr"),
      bind(root),
    ];
    const { resources: _resources, ...linux } = spec.linux;
    spec.linux = { ...linux, seccomp, ...(showsSystemPaths && { maskedPaths: [], readonlyPaths: [] }) };
    spec.linux.namespaces = linux.namespaces.filter(({ type }: { type: string }) => type !== "cgroup");
    // Mounted over: a directory has to be there.
    for (const path of ["usr", root.slice(1), "tmp", "proc", "dev"]) {
      await mkdir(join(directory, "rootfs", path), { recursive: true });
    }
    await writeFile(join(directory, "config.json"), JSON.stringify(spec));
    const name = `toolyard-${process.pid}-${Math.trunc(Math.random() * 1e9)}`;
    const { stdout } = await run(runc ?? "", ["run", name], { cwd: directory, timeout: 60_000 });
    return JSON.parse(stdout.trim().split("\n").at(-1) ?? "");
  }

  test("runs code with the options of compose.yaml", async () => {
    expect(await inContainer(ours)).toMatchObject({ ended: "exit", exitCode: 0, stdout: "42\n" });
  });

  test("refuses by the name of what is missing: a /proc of its own", async () => {
    expect(await inContainer({ ...ours, showsSystemPaths: false })).toEqual({
      code: "code_box_unavailable",
      message: expect.stringContaining("systempaths=unconfined"),
    });
  });

  test("refuses by the name of what is missing: namespaces", async () => {
    // As Docker's own profile does to who has no CAP_SYS_ADMIN.
    const seccomp = {
      defaultAction: "SCMP_ACT_ALLOW",
      syscalls: [
        { names: ["unshare", "mount"], action: "SCMP_ACT_ERRNO", errnoRet: 1 },
        // So that the other call is made.
        { names: ["clone3"], action: "SCMP_ACT_ERRNO", errnoRet: 38 },
        {
          names: ["clone"],
          action: "SCMP_ACT_ERRNO",
          errnoRet: 1,
          args: [{ index: 0, value: 0x1000_0000, valueTwo: 0x1000_0000, op: "SCMP_CMP_MASKED_EQ" }],
        },
      ],
    };
    expect(await inContainer({ ...ours, seccomp })).toEqual({
      code: "code_box_unavailable",
      message: expect.stringContaining("seccomp=containers/seccomp.json"),
    });
  });
});
