/** Before the suites of this directory: the runtime client, and the functions as they are uploaded. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import type { TestProject } from "vitest/node";
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
  const root = join(import.meta.dirname, "../..");
  await promisify(execFile)(process.execPath, ["functions/build.ts"], { cwd: root });
}
