/**
 * What microservices are asked: calls, tests and, of gRPC, what they have. Loaded at the first of them, with all
 * that speaks to instances and registries, since most starts need none of it.
 */
import { createHttpBehaviour, type HttpService } from "../services/http-operations.ts";
import type { DiscoveredTools, OpenService, ProbeReport, SchemeDeps, ServiceCall } from "../services/scheme.ts";
import type { InvocationContext, ToolReply } from "../tools/tool-call.ts";
import { isHttp, toHttpConfig, type SvcConfig } from "./config.ts";
import { Directory } from "./discovery/directory.ts";
import { createGrpcBehaviour } from "./grpc-behaviour.ts";
import { egressTo } from "./instance-egress.ts";
import { Spread } from "./spread.ts";

type Service = OpenService<SvcConfig>;

export interface MicroserviceCalls {
  invoke(call: ServiceCall<SvcConfig>, context: InvocationContext): Promise<ToolReply>;
  discover(service: Service, context: InvocationContext): Promise<DiscoveredTools>;
  probe(service: Service, context: InvocationContext): Promise<ProbeReport>;
}

export function createCalls(deps: SchemeDeps): MicroserviceCalls {
  const directory = new Directory(deps);
  const spread = new Spread(deps.clock, (service, context) => directory.instancesOf(service, context));
  const grpc = createGrpcBehaviour(deps, spread);
  const http = createHttpBehaviour(deps);
  return {
    invoke: (call, context) =>
      isHttp(call.config)
        ? spread.run(call, context, (instance) =>
            http.invoke({ ...call, ...asHttp(call) }, context, egressTo(deps.egress, instance)),
          )
        : grpc.invoke(call, context),
    discover: (service, context) => grpc.discover(service, context),
    probe: (service, context) =>
      isHttp(service.config)
        ? spread.run(service, context, (instance) =>
            http.probe(asHttp(service), context, egressTo(deps.egress, instance)),
          )
        : grpc.probe(service, context),
  };
}

function asHttp({ record, config }: Service): HttpService {
  return { record, config: toHttpConfig(config) };
}
