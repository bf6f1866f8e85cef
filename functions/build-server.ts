/**
 * Bundles the server form into `functions/dist/server/`: plain JavaScript starts in half the
 * time and in 110 MB, where stripping the types of some 400 sources leaves 280 MB behind. `npm start` does
 * it first, unless it has been done and nothing has changed since; images do it once.
 */
import { cp, readdir, rm } from "node:fs/promises";
import { join, resolve } from "node:path";
import { build, type BuildOptions } from "esbuild";
import { BuildRecord } from "./build-record.ts";
import { onlyDispatcher, onlyEnglish } from "./less-of-libraries.ts";
import { oneStart } from "./one-start.ts";

const directory = import.meta.dirname;
/** What a bundle depends on beside its sources. */
const scripts = ["build-server.ts", "less-of-libraries.ts", "one-start.ts"].map((name) => `${directory}/${name}`);

/** Bundled CommonJS asks for `require`, which ESM has not. */
const banner = `import { createRequire as createRequireOf } from "node:module"; const require = createRequireOf(import.meta.url);`;

export interface ServerBuild {
  /** Starts a server; default: `functions/local.ts`. */
  readonly entry?: string;
  /** More programs beside it in `bin/`: sources by name. */
  readonly programs?: Readonly<Record<string, string>>;
  /** Directory that holds this build afterwards, and nothing else. The program is `bin/server.mjs` in it. */
  readonly out: string;
}

/** @returns where the program is */
export async function buildServer({ entry, programs = {}, out }: ServerBuild): Promise<string> {
  const server = entry ?? `${directory}/local.ts`;
  const options: BundleOptions = {
    entryPoints: [
      { in: server, out: "server" },
      // Forked by it, to start plugins.
      { in: `${directory}/../packages/platform/src/local/plugin-helper.ts`, out: "plugin-helper" },
      // Of its threads that read documents.
      { in: `${directory}/../packages/platform/src/document-reader/program.ts`, out: "document-reader" },
      // Of its threads that read the database.
      { in: `${directory}/../packages/db/src/reader-program.ts`, out: "database-reader" },
      ...Object.entries(programs).map(([name, source]) => ({ in: source, out: name })),
    ],
    // In one file with another program, `local.ts` is not what was started, and must not start a server of its own.
    define: entry === undefined ? {} : { "import.meta.main": "false" },
    // All in one directory: migrations are looked for beside it. What a setting asks for is read then.
    outdir: `${out}/bin`,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    // Blanks and comments would stay in memory. Names stay, for who reads a stack.
    minifyWhitespace: true,
    minifySyntax: true,
    splitting: true,
    platform: "node",
    format: "esm",
    target: "node24",
    sourcemap: "linked",
    banner: { js: banner },
    metafile: true,
    logLevel: "warning",
  };
  const record = new BuildRecord(out, options);
  const made = new Set((await record.outputs()) ?? (await bundle(server, options, record)));
  // Afterwards, and only what is of another build: a server that runs from here reads some of its files late.
  for (const name of await readdir(`${out}/bin`)) {
    if (!made.has(resolve(out, "bin", name))) await rm(join(out, "bin", name), { recursive: true });
  }
  await rm(`${out}/migrations`, { recursive: true, force: true });
  // Found beside the code, as in the sources.
  await cp(`${directory}/../packages/db/migrations`, `${out}/migrations`, { recursive: true });
  return `${out}/bin/server.mjs`;
}

type BundleOptions = Omit<BuildOptions, "plugins"> & { readonly metafile: true };

/** @returns the files that it has made, as absolute paths */
async function bundle(entry: string, options: BundleOptions, record: BuildRecord): Promise<readonly string[]> {
  const { metafile } = await build({ ...options, plugins: [onlyEnglish, onlyDispatcher, await oneStart(entry)] });
  const outputs = Object.keys(metafile.outputs).map((file) => resolve(file));
  await record.write([...Object.keys(metafile.inputs), ...scripts], outputs);
  return outputs;
}

if (import.meta.main) await buildServer({ out: `${directory}/dist/server` });
