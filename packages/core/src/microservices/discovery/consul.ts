/** Instances that Consul knows as healthy, with the weights it gives them. */
import * as z from "zod";
import type { InvocationContext } from "../../tools/tool-call.ts";
import type { Instance } from "../instance.ts";
import type { consulSchema } from "./fields.ts";
import { queryOf, RegistryClient, withoutSlash, type Registry, type RegistryDeps } from "./registry.ts";

const entriesSchema = z.array(
  z.looseObject({
    Node: z.looseObject({ Address: z.string().nullish() }).nullish(),
    Service: z.looseObject({
      Address: z.string().nullish(),
      Port: z.number(),
      Weights: z.looseObject({ Passing: z.number().nullish() }).nullish(),
    }),
  }),
);

export function createConsul(config: z.output<typeof consulSchema>, deps: RegistryDeps): Registry {
  const client = new RegistryClient(deps, `Consul of '${config.service}'`);
  return {
    async instances(context: InvocationContext): Promise<readonly Instance[]> {
      const { datacenter: dc, tag, namespace: ns, partition, token, tls } = config;
      const query = queryOf({ passing: "true", dc, tag, ns, partition });
      const answer = await client.ask(
        {
          url: `${withoutSlash(config.url)}/v1/health/service/${encodeURIComponent(config.service)}?${query}`,
          headers: token === undefined ? [] : [["x-consul-token", await client.headerSecret(token, context)]],
          tls,
        },
        context,
      );
      if (answer.status !== 200) throw client.refusal(answer);
      const parsed = entriesSchema.safeParse(answer.json);
      if (!parsed.success) throw client.failure("answered with what is no list of instances");
      if (parsed.data.length === 0 && answer.headers["x-consul-results-filtered-by-acls"] === "true") {
        // Without rights there is an empty list, not a refusal.
        throw client.refused(403, "the token needs 'read' for the service and for the nodes that it is on");
      }
      return parsed.data.flatMap(({ Node: node, Service: service }) => {
        const host = service.Address || node?.Address || "";
        const weight = service.Weights?.Passing ?? 1;
        return host === "" || weight <= 0 ? [] : [{ host, port: service.Port, weight }];
      });
    },
  };
}
