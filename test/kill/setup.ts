/** Before the suites of this directory: the server that is killed, bundled as `npm start` has it. */
import { dirname, join } from "node:path";
import { buildServer } from "../../functions/build/server.ts";
import { program } from "./instance.ts";

// oxlint-disable-next-line import/no-default-export -- vitest asks for it
export default async function setUp(): Promise<void> {
  await buildServer({
    entry: join(import.meta.dirname, "../support/killable.ts"),
    out: dirname(dirname(program)),
  });
}
