/**
 * Bundles the Lambda functions into `functions/dist/`: an ESM file each, and `chunks/` that they share or
 * load at the first use, such as the clients of AWS (design "AWS"). What only the server form needs (the
 * native database binding) is left out, and zod's other languages with it.
 */
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { dirname, join, relative, resolve } from "node:path";
import { gzipSync } from "node:zlib";
import { build as bundle, type BuildOptions as BundlerOptions, type Metafile, type Plugin } from "esbuild";
import { BuildRecord } from "./record.ts";
import { onlyDispatcher, onlyEnglish } from "./less-of-libraries.ts";
import { oneStart } from "./one-start.ts";

const functions = join(import.meta.dirname, "..");
/** What a bundle depends on beside its sources. */
const scripts = ["functions.ts", "less-of-libraries.ts", "one-start.ts"].map((name) => join(import.meta.dirname, name));
const names = ["chat", "api", "ws", "worker", "tick", "migration"];
/** The function whose start somebody waits for with every first chat. */
const awaited = "chat";
const box = "plugin-box";
/** Of the server form, which lies beside the functions and may be running from there. */
const notOurs = "server";

export interface BuildOptions {
  /** Default: `functions/dist`. */
  readonly out?: string;
  /** Modules of `functions/` with another file in their place, for tests. */
  readonly replace?: Readonly<Record<string, string>>;
}

/** Bytes that a function may load at its start; a careless import is larger than what is left. */
const largestStart = 1_600_000;
/** Stands for a function where the sizes are told. */
export const loadedLater = "later";

export interface Bundle {
  readonly name: string;
  /** Of all files that are read at the start. */
  readonly bytes: number;
  readonly gzippedBytes: number;
}

/**
 * Bundled CommonJS asks for `require`, which ESM has not. And validators write code for themselves at their
 * first use, which pays for itself after some hundred requests: functions are told not to.
 */
const banner = `import { createRequire as createRequireOf } from "node:module"; const require = createRequireOf(import.meta.url); globalThis.__zod_globalConfig ??= { jitless: true };`;

/** Reached only with a `file:` database, which functions do not have. */
const noFileDatabase: Plugin = {
  name: "no-file-database",
  setup(build) {
    build.onLoad({ filter: /packages\/db\/src\/file-database\.ts$/ }, () => ({
      contents: `export function openFileDatabase() { throw new Error("DATABASE_URL: a function needs libsql:// or https://"); }`,
    }));
  },
};

const engine = "pattern-engine";
const isEngine = /packages\/core\/src\/tools\/pattern-engine\.ts$/;

/**
 * The engine of patterns is a file of CommonJS beside the chunks, which is read at the first pattern: few
 * chats have one, and `require` is the one way to read a file where nothing may wait.
 */
const lateEngine: Plugin = {
  name: "late-engine",
  setup(build) {
    build.onLoad({ filter: isEngine }, () => ({
      contents: `import { createRequire } from "node:module";
        let read;
        export function engine() { return (read ??= createRequire(import.meta.url)("./${engine}.cjs").engine()); }`,
    }));
  },
};

/** The program of threads that read documents, in a file beside the chunk that starts them. */
const documentReader = "document-reader";
const isReader = /packages\/platform\/src\/document-reader\/program-url\.ts$/;

/** The database client speaks HTTP here; its WebSocket dialect is never used. */
const noWebSocket: Plugin = {
  name: "no-websocket",
  setup(build) {
    build.onLoad({ filter: /node_modules\/(isomorphic-ws|ws)\/.*\.m?js$/ }, () => ({
      contents: "export const WebSocket = undefined;",
    }));
  },
};

function replaceModules(replace: Readonly<Record<string, string>>): Plugin {
  const replaced = new Map(Object.entries(replace).map(([name, file]) => [`${functions}/${name}`, file]));
  return {
    name: "replace-modules",
    setup(build) {
      build.onResolve({ filter: /^\.\.?\// }, ({ path, resolveDir }) => {
        const file = replaced.get(resolve(resolveDir, path));
        return file === undefined ? undefined : { path: file };
      });
    },
  };
}

/**
 * Bundles every function, minified, with a source map, unless it has been done and nothing has changed since; the
 * last line is of what is loaded later.
 * @throws Error where a function has become too large
 */
export async function buildFunctions({ out = `${functions}/dist`, replace = {} }: BuildOptions = {}): Promise<
  readonly Bundle[]
> {
  await mkdir(out, { recursive: true });
  const record = new BuildRecord(out, { replace });
  const made = (await record.outputs()) ?? (await bundleAll({ out, replace }, record));
  await removeOthers(out, new Set([...made, record.file, resolve(out, metaFile)]));
  const { outputs } = JSON.parse(await readFile(join(out, metaFile), "utf8")) as Pick<Metafile, "outputs">;
  const files = Object.keys(outputs).filter((file) => /\.[mc]js$/.test(file));
  const starts = [...names, box].map((name) => {
    const entry = files.find((file) => resolve(file) === resolve(out, `${name}.mjs`));
    return { name, start: startOf(outputs, entry ?? "") };
  });
  const later = files.filter((file) => !starts.some(({ start }) => start.has(file)));
  const measured = await Promise.all(starts.map(({ name, start }) => measure(name, [...start])));
  for (const { name, bytes } of measured) {
    if (bytes > largestStart) {
      throw new Error(
        `'${name}' loads ${bytes} bytes at its start, more than ${largestStart}; import lazily what it can.`,
      );
    }
  }
  return [...measured, await measure(loadedLater, later)];
}

/** The bundler's report, beside what it is about. */
const metaFile = "meta.json";

/** @returns the files that it has made, as absolute paths */
async function bundleAll({ out, replace }: Required<BuildOptions>, record: BuildRecord): Promise<readonly string[]> {
  const common = {
    outdir: out,
    outExtension: { ".js": ".mjs" },
    chunkNames: "chunks/[name]-[hash]",
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node24",
    minify: true,
    sourcemap: "linked",
    banner: { js: banner },
    plugins: [onlyEnglish, noFileDatabase, onlyDispatcher, noWebSocket, lateEngine, replaceModules(replace)],
    metafile: true,
    logLevel: "warning",
  } as const satisfies BundlerOptions;
  const split = { ...common, splitting: true } as const;
  const entryPoint = (name: string): { in: string; out: string } => ({ in: `${functions}/${name}.ts`, out: name });
  const shared = await bundle({ ...split, entryPoints: names.filter((name) => name !== awaited).map(entryPoint) });
  const chat = await bundle({
    ...split,
    plugins: [...common.plugins, await oneStart(entryPoint(awaited).in)],
    entryPoints: [entryPoint(awaited)],
  });
  // Alone in its image, so it is one file.
  const alone = await bundle({ ...common, entryPoints: [{ in: `${functions}/plugin-box/handler.ts`, out: box }] });
  const patterns = await bundle({
    ...common,
    format: "cjs",
    outExtension: { ".js": ".cjs" },
    banner: {},
    plugins: [],
    entryPoints: [{ in: `${functions}/../packages/core/src/tools/${engine}.ts`, out: `chunks/${engine}` }],
  });
  const reader = await bundle({
    ...common,
    plugins: [],
    entryPoints: [
      { in: `${functions}/../packages/platform/src/document-reader/program.ts`, out: `chunks/${documentReader}` },
    ],
  });
  const late: readonly LateFile[] = [
    { isReader: isEngine, file: resolve(out, `chunks/${engine}.cjs`), kind: "require-call" },
    { isReader, file: resolve(out, `chunks/${documentReader}.mjs`), kind: "dynamic-import" },
  ];
  const outputs = {
    ...withLate({ ...shared.metafile.outputs, ...chat.metafile.outputs }, late),
    ...alone.metafile.outputs,
    ...patterns.metafile.outputs,
    ...reader.metafile.outputs,
  };
  const inputs = {
    ...reader.metafile.inputs,
    ...patterns.metafile.inputs,
    ...shared.metafile.inputs,
    ...chat.metafile.inputs,
    ...alone.metafile.inputs,
  };
  await writeFile(join(out, metaFile), JSON.stringify({ inputs, outputs }));
  const made = Object.keys(outputs).map((file) => resolve(file));
  await record.write([...Object.keys(inputs), ...scripts], made);
  return made;
}

/** Of an earlier build. */
async function removeOthers(out: string, made: ReadonlySet<string>): Promise<void> {
  const found = await readdir(out, { recursive: true, withFileTypes: true });
  const files = found.filter((entry) => !entry.isDirectory()).map(({ parentPath, name }) => resolve(parentPath, name));
  const others = files.filter((file) => !made.has(file) && !file.startsWith(`${resolve(out, notOurs)}/`));
  await Promise.all(others.map((file) => rm(file, { force: true })));
}

/** A file that is read by name, which the bundler cannot know. */
interface LateFile {
  /** Modules that read it. */
  readonly isReader: RegExp;
  readonly file: string;
  readonly kind: "require-call" | "dynamic-import";
}

/**
 * The report with which files read those.
 * @throws Error where one of them would not find it
 */
function withLate(outputs: Metafile["outputs"], late: readonly LateFile[]): Metafile["outputs"] {
  return Object.fromEntries(
    Object.entries(outputs).map(([name, output]) => {
      const inputs = Object.keys(output.inputs);
      const read = late.filter(({ isReader: isOne }) => inputs.some((input) => isOne.test(input)));
      const imports = read.map(({ file, kind }) => {
        const path = relative(process.cwd(), file);
        if (dirname(name) !== dirname(path)) throw new Error(`${name} has to be beside ${path}, which it reads.`);
        return { path, kind };
      });
      return [name, { ...output, imports: [...output.imports, ...imports] }];
    }),
  );
}

/** What is read before a function can serve: its file, and what that imports at once. */
export function startOf(outputs: Outputs, file: string, found = new Set<string>()): ReadonlySet<string> {
  found.add(file);
  for (const { path, kind } of outputs[file]?.imports ?? []) {
    if (kind === "import-statement" && path in outputs && !found.has(path)) startOf(outputs, path, found);
  }
  return found;
}

/** The part of esbuild's report that says which file imports which. */
export type Outputs = Readonly<
  Record<string, { readonly imports: readonly { readonly path: string; readonly kind: string }[] }>
>;

async function measure(name: string, files: readonly string[]): Promise<Bundle> {
  const contents = await Promise.all(files.map((file) => readFile(file)));
  return {
    name,
    bytes: contents.reduce((sum, code) => sum + code.length, 0),
    gzippedBytes: contents.reduce((sum, code) => sum + gzipSync(code).length, 0),
  };
}

function kilobytes(bytes: number): string {
  return (bytes / 1_024).toFixed(0).padStart(5);
}

if (import.meta.main) {
  for (const { name, bytes, gzippedBytes } of await buildFunctions()) {
    process.stdout.write(`${name.padEnd(10)} ${kilobytes(bytes)} KiB, ${kilobytes(gzippedBytes)} KiB gzipped\n`);
  }
}
