/**
 * Bundles the programs that run beside what is foreign into one file of JavaScript each, and keeps them as texts that
 * every home has at hand: `npm run build:module-host` after a change in packages/platform/src/module-host (modules of
 * VCP plugins), packages/platform/src/code-box (code of models) or packages/platform/src/tables (analysis of files).
 */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { build } from "esbuild";

const root = join(import.meta.dirname, "../..");

interface KeptProgram {
  /** Directory of packages/platform/src. */
  readonly of: string;
  readonly constant: string;
  readonly kept: string;
}

const moduleHost: KeptProgram = {
  of: "module-host",
  constant: "hostProgram",
  kept: `${root}/packages/core/src/vcp/modules/host-program.ts`,
};
const codeBox: KeptProgram = {
  of: "code-box",
  constant: "codeBoxProgram",
  kept: `${root}/packages/platform/src/local/code-box-program.ts`,
};
const tables: KeptProgram = {
  of: "tables",
  constant: "tablesProgram",
  kept: `${root}/packages/platform/src/local/tables-program.ts`,
};

export function moduleHostSource(): Promise<string> {
  return sourceOf(moduleHost);
}

export function codeBoxSource(): Promise<string> {
  return sourceOf(codeBox);
}

export function tablesSource(): Promise<string> {
  return sourceOf(tables);
}

/** The module that holds it, as it should be. */
async function sourceOf({ of, constant }: KeptProgram): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [`${root}/packages/platform/src/${of}/program.ts`],
    absWorkingDir: root,
    bundle: true,
    write: false,
    platform: "node",
    format: "cjs",
    // Of machines that plugins run on.
    target: "node20",
    minifyWhitespace: true,
    legalComments: "none",
    logLevel: "warning",
  });
  const [file] = outputFiles;
  return [
    `/** The program of packages/platform/src/${of}, as \`npm run build:module-host\` has bundled it: not to be edited. */`,
    `export const ${constant}: string = ${JSON.stringify(file?.text ?? "")};`,
    "",
  ].join("\n");
}

if (import.meta.main) {
  for (const program of [moduleHost, codeBox, tables]) await writeFile(program.kept, await sourceOf(program));
}
