/**
 * Bundles the Lambda functions into `functions/dist/` as ESM (design "AWS"). What only the
 * server form needs (the native database binding) is left out, and zod's other languages with it.
 */
import { readFile, rm } from "node:fs/promises";
import { resolve } from "node:path";
import { gzipSync } from "node:zlib";
import { build as bundle, type Metafile, type Plugin } from "esbuild";

const directory = import.meta.dirname;
const names = ["chat", "api", "worker", "tick", "plugin-box"];
/** Where the module of a function lies, if not beside this one. */
const modules: Readonly<Record<string, string>> = { "plugin-box": "plugin-box/handler.ts" };

export interface BuildOptions {
  /** Default: `functions/dist`. */
  readonly out?: string;
  /** Modules of this directory with another file in their place, for tests. */
  readonly replace?: Readonly<Record<string, string>>;
}

export interface Bundle {
  readonly name: string;
  /** What is loaded as the function starts. */
  readonly bytes: number;
  readonly gzippedBytes: number;
  /** What is loaded when it is first needed. */
  readonly lazyBytes: number;
}

/** Of what a function loads as it starts; an import that does not belong there is larger than what is left. */
const largestBundle = 1_600_000;

/** Bundled CommonJS asks for `require`, which ESM has not. */
const banner = `import { createRequire as createRequireOf } from "node:module"; const require = createRequireOf(import.meta.url);`;

/** Messages of validators are made in English only; the other languages are most of zod's size. */
const onlyEnglish: Plugin = {
  name: "only-english",
  setup(build) {
    build.onLoad({ filter: /zod\/v4\/locales\/index\.js$/ }, () => ({
      contents: `export { default as en } from "./en.js";`,
    }));
  },
};

/** Reached only with a `file:` database, which functions do not have. */
const noFileDatabase: Plugin = {
  name: "no-file-database",
  setup(build) {
    build.onLoad({ filter: /packages\/db\/src\/file-database\.ts$/ }, () => ({
      contents: `export function openFileDatabase() { throw new Error("DATABASE_URL: a function needs libsql:// or https://"); }`,
    }));
  },
};

/**
 * Of the HTTP client only the dispatcher is used: its `fetch`, caches and WebSockets stay out, and so do
 * HTTP/2, which we never ask for (Node's module for it costs 9 ms of a start), and parsers that this
 * runtime never picks (without SIMD, and one to be asked for by a variable).
 */
const onlyDispatcher: Plugin = {
  name: "only-dispatcher",
  setup(build) {
    build.onLoad({ filter: /node_modules\/undici\/index\.js$/ }, () => ({
      contents: `exports.Pool = require("./lib/dispatcher/pool.js"); exports.buildConnector = require("./lib/core/connect.js");`,
    }));
    build.onLoad({ filter: /node_modules\/undici\/lib\/(milo\/\S+|llhttp\/llhttp-wasm)\.js$/ }, () => ({
      contents: `throw new Error("this HTTP parser is not part of the bundle");`,
    }));
    build.onLoad({ filter: /node_modules\/undici\/lib\/dispatcher\/client-h2\.js$/ }, () => ({
      contents: `module.exports = () => { throw new Error("HTTP/2 is not part of the bundle"); };`,
    }));
  },
};

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
  const replaced = new Map(Object.entries(replace).map(([name, file]) => [`${directory}/${name}`, file]));
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
 * Bundles every function, minified, with a source map: one file, and pieces beside it for what is imported
 * when it is first needed.
 * @throws Error where a function has become too large
 */
export async function buildFunctions({ out = `${directory}/dist`, replace = {} }: BuildOptions = {}): Promise<
  readonly Bundle[]
> {
  await rm(out, { recursive: true, force: true });
  const plugins = [onlyEnglish, noFileDatabase, onlyDispatcher, noWebSocket, replaceModules(replace)];
  return Promise.all(names.map((name) => buildFunction(name, out, plugins)));
}

async function buildFunction(name: string, out: string, plugins: Plugin[]): Promise<Bundle> {
  const { metafile } = await bundle({
    entryPoints: [{ in: `${directory}/${modules[name] ?? `${name}.ts`}`, out: name }],
    outdir: out,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    splitting: true,
    // Not in a directory of the function's name: the runtime would take that for the function.
    chunkNames: `pieces/${name}-[name]-[hash]`,
    platform: "node",
    format: "esm",
    target: "node24",
    minify: true,
    sourcemap: "linked",
    banner: { js: banner },
    plugins,
    metafile: true,
    logLevel: "warning",
  });
  const { outputs } = metafile;
  const pieces = Object.keys(outputs).filter((file) => file.endsWith(".mjs"));
  const entry = pieces.find((file) => resolve(file) === resolve(out, `${name}.mjs`)) ?? "";
  const started = reachable(outputs, entry);
  const sizes = await Promise.all(
    [...started].map(async (file) => {
      const code = await readFile(file);
      return { bytes: code.length, gzippedBytes: gzipSync(code).length };
    }),
  );
  const bytes = sum(sizes.map((size) => size.bytes));
  if (bytes > largestBundle) {
    throw new Error(
      `'${name}' loads ${bytes} bytes as it starts, more than ${largestBundle}; import lazily what it can.`,
    );
  }
  return {
    name,
    bytes,
    gzippedBytes: sum(sizes.map((size) => size.gzippedBytes)),
    lazyBytes: sum(pieces.filter((file) => !started.has(file)).map((file) => outputs[file]?.bytes ?? 0)),
  };
}

/** A piece and all that it imports at once. */
function reachable(outputs: Metafile["outputs"], entry: string): ReadonlySet<string> {
  const found = new Set([entry]);
  // A set is walked over what is added on the way as well.
  for (const file of found) {
    const imports = outputs[file]?.imports ?? [];
    for (const { path, kind, external } of imports) {
      if (kind === "import-statement" && external !== true) found.add(path);
    }
  }
  return found;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

function kilobytes(bytes: number): string {
  return (bytes / 1_024).toFixed(0).padStart(5);
}

if (import.meta.main) {
  for (const { name, bytes, gzippedBytes, lazyBytes } of await buildFunctions()) {
    const sizes = `${kilobytes(bytes)} KiB, ${kilobytes(gzippedBytes)} KiB gzipped`;
    process.stdout.write(`${name.padEnd(10)} ${sizes}; ${kilobytes(lazyBytes)} KiB more when needed\n`);
  }
}
