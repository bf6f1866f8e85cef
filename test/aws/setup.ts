/** Before the suites of this directory: the runtime client, and the functions as they are uploaded. */
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { buildFunctions } from "../../functions/build/functions.ts";
import { killableFunctions } from "./killable-site.ts";
import { installRuntimeClient } from "./runtime-client.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** Why the runtime client cannot be had; empty where it is there. */
    readonly runtimeClientMissing: string;
  }
}

// oxlint-disable-next-line import/no-default-export -- vitest asks for it
export default async function setUp(project: TestProject): Promise<void> {
  const missing = (await installRuntimeClient()) ?? "";
  if (missing !== "") process.stdout.write(`\nSkipping everything under the runtime client: ${missing}\n\n`);
  project.provide("runtimeClientMissing", missing);
  if (missing !== "") return;
  await buildFunctions();
  await buildFunctions({
    out: killableFunctions,
    replace: { "function-hooks.ts": join(import.meta.dirname, "killable-hooks.ts") },
  });
}
