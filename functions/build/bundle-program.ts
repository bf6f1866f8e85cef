/**
 * Bundles a program: plain JavaScript starts in a fraction of the time and the memory that stripping the types of
 * hundreds of sources takes. What has been bundled is left alone as long as nothing of it has changed.
 */
import { readdir, rm } from "node:fs/promises";
import { join, resolve } from "node:path";
import { build, type BuildOptions } from "esbuild";
import { BuildRecord } from "./record.ts";
import { onlyDispatcher, onlyEnglish } from "./less-of-libraries.ts";
import { oneStart } from "./one-start.ts";

/** What a bundle depends on beside its sources. */
const scripts = ["bundle-program.ts", "less-of-libraries.ts", "one-start.ts"].map((name) =>
  join(import.meta.dirname, name),
);

/** Bundled CommonJS asks for `require`, which ESM has not. */
const banner = `import { createRequire as createRequireOf } from "node:module"; const require = createRequireOf(import.meta.url);`;

export interface Program {
  readonly name: string;
  readonly source: string;
  /** What it starts beside itself, as processes or threads: sources by the names that it looks for. */
  readonly helpers?: Readonly<Record<string, string>>;
  readonly define?: Readonly<Record<string, string>>;
}

/**
 * @param out directory whose `bin/` holds the program and what it reads later, and nothing else, afterwards
 * @returns where the program is: `bin/<name>.mjs`
 */
export async function bundleProgram(program: Program, out: string): Promise<string> {
  const { name, source, helpers = {}, define = {} } = program;
  const options: BundleOptions = {
    entryPoints: Object.entries({ [name]: source, ...helpers }).map(([made, file]) => ({ in: file, out: made })),
    define: { ...define },
    // All in one directory: files beside the code are looked for from there. What a setting asks for is read then.
    outdir: join(out, "bin"),
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
  const made = new Set((await record.outputs()) ?? (await bundle(source, options, record)));
  // Afterwards, and only what is of another build: a program that runs from here reads some of its files late.
  for (const file of await readdir(join(out, "bin"))) {
    if (!made.has(resolve(out, "bin", file))) await rm(join(out, "bin", file), { recursive: true });
  }
  return join(out, "bin", `${name}.mjs`);
}

type BundleOptions = Omit<BuildOptions, "plugins"> & { readonly metafile: true };

/** @returns the files that it has made, as absolute paths */
async function bundle(source: string, options: BundleOptions, record: BuildRecord): Promise<readonly string[]> {
  const { metafile } = await build({ ...options, plugins: [onlyEnglish, onlyDispatcher, await oneStart(source)] });
  const outputs = Object.keys(metafile.outputs).map((file) => resolve(file));
  await record.write([...Object.keys(metafile.inputs), ...scripts], outputs);
  return outputs;
}
