/** A flow of the owner, for the isolation suite. */
import type { IsolationDriver } from "../define-route.ts";

/** Published, so that it has a version. */
export async function arrangeFlow(owner: IsolationDriver): Promise<string> {
  const unique = Math.random().toString(36).slice(2);
  const flow = await owner.send("post", "/v1/flows", {
    definition: {
      schema_version: 1,
      name: `private_${unique}`,
      description: "Of another tenant.",
      start: "done",
      nodes: { done: { kind: "end", output: 1 } },
    },
    publish: true,
  });
  return String(flow["id"]);
}
