/**
 * `npm run release:store-previous -- <git ref>`: builds the functions of that release, from a clean copy
 * with its own dependencies, and stores them here for the suites, which run them on this release's schema.
 */
import { execFile } from "node:child_process";
import { glob, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { constants, brotliCompress } from "node:zlib";
import { bundlesFile, releaseFile, type PreviousRelease } from "./previous-release.ts";

const run = promisify(execFile);
const root = join(import.meta.dirname, "../../..");
/** The functions have most of their code in common; a window over all of them sees that. */
const compression = { params: { [constants.BROTLI_PARAM_LGWIN]: 24, [constants.BROTLI_PARAM_QUALITY]: 11 } };

const [ref] = process.argv.slice(2);
if (ref === undefined) {
  process.stderr.write("Usage: npm run release:store-previous -- <git ref of the release>\n");
  process.exit(2);
}

const directory = await mkdtemp(join(tmpdir(), "toolyard-release-"));
try {
  const { stdout: commit } = await run("git", ["rev-parse", `${ref}^{commit}`], { cwd: root });
  const archive = join(directory, "release.tar");
  await run("git", ["archive", "--output", archive, commit.trim()], { cwd: root });
  await run("tar", ["-xf", archive], { cwd: directory });
  await run("npm", ["ci", "--no-audit", "--no-fund"], { cwd: directory });
  await run("npm", ["run", "build"], { cwd: directory });
  const { version } = JSON.parse(await readFile(join(directory, "package.json"), "utf8")) as { version: string };
  const dist = join(directory, "functions/dist");
  const bundles: Record<string, string> = {};
  for await (const file of glob("**/*.{mjs,cjs}", { cwd: dist }))
    bundles[file] = await readFile(join(dist, file), "utf8");
  const isStreaming = /createStreamingHandler/.test(await readFile(join(directory, "functions/api.ts"), "utf8"));
  const apiTransferMode = isStreaming ? "STREAM" : "BUFFERED";
  const release: PreviousRelease = { version, commit: commit.trim(), apiTransferMode };
  const stored = await promisify(brotliCompress)(JSON.stringify(bundles), compression);
  await writeFile(bundlesFile, stored);
  await writeFile(releaseFile, `${JSON.stringify(release, null, 2)}\n`);
  process.stdout.write(`stored ${version} (${release.commit}): ${Math.round(stored.length / 1_024)} KiB\n`);
} finally {
  await rm(directory, { recursive: true, force: true });
}
