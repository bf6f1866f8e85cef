/** Before suites that start programs: bundles them as `npm start` has them. */
import { join } from "node:path";
import { buildServer } from "../../functions/build-server.ts";
import { programsDirectory } from "./programs.ts";

// oxlint-disable-next-line import/no-default-export -- vitest asks for it
export default async function setUp(): Promise<void> {
  await buildServer({
    programs: { node: join(import.meta.dirname, "../../functions/node.ts") },
    out: programsDirectory,
  });
}
