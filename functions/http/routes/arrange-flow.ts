/** A flow of the owner, for the isolation suite. */
import type { JsonObject } from "@toolyard/core/json";
import type { IsolationDriver } from "../define-route.ts";

/** Published, so that it has a version. @param first its only node; absent: it ends */
export async function arrangeFlow(
  owner: IsolationDriver,
  first: JsonObject = { kind: "end", output: 1 },
): Promise<string> {
  const unique = Math.random().toString(36).slice(2);
  const flow = await owner.send("post", "/v1/flows", {
    definition: {
      schema_version: 1,
      name: `private_${unique}`,
      description: "Of another tenant.",
      start: "first",
      nodes: { first },
    },
    publish: true,
  });
  return String(flow["id"]);
}
