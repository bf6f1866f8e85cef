/** Before suites that start programs: bundles them as `npm start` and `npm run node` have them. */
import { buildNode } from "../../functions/build/node.ts";
import { buildServer } from "../../functions/build/server.ts";
import { nodeDirectory, serverDirectory } from "./programs.ts";

// oxlint-disable-next-line import/no-default-export -- vitest asks for it
export default async function setUp(): Promise<void> {
  await buildServer({ out: serverDirectory });
  await buildNode(nodeDirectory);
}
