/** The compiler sees the types of SST and of AWS in `infra/`: a check that lets everything through would show nothing. */
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, describe, expect, test } from "vitest";

const root = join(import.meta.dirname, "../..");
const run = promisify(execFile);
const directories: string[] = [];

afterEach(async () => {
  for (const directory of directories.splice(0)) await rm(directory, { recursive: true, force: true });
});

/** What the compiler says to these lines with the options of `infra/`. */
async function compile(lines: string): Promise<string> {
  // Inside the working directory of SST, which git ignores: types of Node are looked up from here.
  const directory = await mkdtemp(join(root, ".sst/planted-"));
  directories.push(directory);
  const config = {
    extends: "../../infra/tsconfig.json",
    files: ["../platform/config.d.ts", "planted.ts"],
    include: [],
  };
  await writeFile(join(directory, "planted.ts"), lines);
  await writeFile(join(directory, "tsconfig.json"), JSON.stringify(config));
  return run(join(root, "node_modules/.bin/tsc"), ["-p", directory], { cwd: root }).then(
    () => "",
    (error: { readonly stdout: string }) => error.stdout,
  );
}

describe("the types of infra/", () => {
  test("hold", { timeout: 120_000 }, async () => {
    const { stdout } = await run(join(root, "node_modules/.bin/tsc"), ["-p", "infra"], { cwd: root });
    expect(stdout).toBe("");
  });

  test(
    "refuse planted mistakes, in SST's components, in AWS's resources and in global helpers",
    {
      timeout: 120_000,
    },
    async () => {
      const said = await compile(
        [
          `new sst.aws.Function("A", { handler: "a.b", streaming: "yes please" });`,
          `new aws.sqs.Queue("B", { visibilityTimeoutSeconds: { minutes: 5 } });`,
          `export const c: number = $interpolate\`text\`;`,
          `new sst.aws.Function("D", { handler: "a.b", timeout: "10 fortnights" });`,
          `new dockerbuild.Image("E", { push: "perhaps" });`,
          `export const right = new sst.aws.Function("F", { handler: "a.b", streaming: true });`,
        ].join("\n"),
      );
      const faulty = [...said.matchAll(/planted\.ts\((\d+),/g)].map(([, line]) => Number(line));
      expect(faulty).toEqual([1, 2, 3, 4, 5]);
    },
  );
});
