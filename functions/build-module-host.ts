/**
 * Bundles the program that runs modules of VCP plugins into one file of JavaScript, and keeps it as a text that
 * every home has at hand: `npm run build:module-host` after a change in packages/platform/src/module-host.
 */
import { writeFile } from "node:fs/promises";
import { build } from "esbuild";

const root = `${import.meta.dirname}/..`;
const kept = `${root}/packages/core/src/vcp/modules/host-program.ts`;

/** The module that holds it, as it should be. */
export async function moduleHostSource(): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [`${root}/packages/platform/src/module-host/program.ts`],
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
    "/** The program of packages/platform/src/module-host, as `npm run build:module-host` has bundled it: not to be edited. */",
    `export const hostProgram: string = ${JSON.stringify(file?.text ?? "")};`,
    "",
  ].join("\n");
}

if (import.meta.main) await writeFile(kept, await moduleHostSource());
