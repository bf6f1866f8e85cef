/**
 * `api://service/tool`: HTTP APIs (tool management specification, "HTTP API 调用"; API-1 to API-6). A service
 * has the address, the credentials and the defaults; a tool is an operation of it.
 */
import * as z from "zod";
import { GatewayError } from "../../errors/gateway-error.ts";
import type { Egress } from "../../ports/egress.ts";
import { breakerField } from "../../services/breaker.ts";
import { headersField, httpUrlField, policyFields, queryField } from "../../services/config-fields.ts";
import { authFields, readAuth } from "../../services/http-auth.ts";
import { createHttpBehaviour, endpointSchema, operationSchema, toolIdSchema } from "../../services/http-operations.ts";
import { defineScheme } from "../../services/scheme.ts";
import { tlsField } from "../../services/tls.ts";
import { uriOptions } from "../uri.ts";

const apiConfigSchema = z
  .strictObject({
    base_url: httpUrlField("Address that endpoints are appended to.").meta({ example: "https://crm.example.com/v1" }),
    ...authFields,
    headers: headersField().optional(),
    query: queryField().optional(),
    tls: tlsField.optional(),
    breaker: breakerField.optional(),
    ...policyFields(),
    probe_endpoint: endpointSchema.optional().meta({
      description: "What a test of the connection asks for with GET; absent: `base_url`, any answer will do.",
    }),
    tools: z.record(toolIdSchema, operationSchema).default({}).meta({ description: "Operations by tool id." }),
  })
  .transform(readAuth);

export const apiScheme = defineScheme({
  scheme: "api",
  title: "HTTP API",
  description: "An API over HTTP: address, credentials and operations.",
  icon: "globe",
  config: apiConfigSchema,
  options: { method: uriOptions.method },
  create: (deps) => {
    const http = createHttpBehaviour(deps);
    return {
      ...http,
      check(service) {
        http.check(service);
        checkAddress(service.config.base_url, deps.egress);
      },
      invoke: (call, context) => http.invoke(call, context),
      breaker: ({ config }) => config.breaker,
      probe: (service, context) => http.probe(service, context),
      reachedBy: () => ["base_url"],
    };
  },
});

/** @throws GatewayError `egress_denied` */
function checkAddress(url: string, egress: Egress): void {
  try {
    egress.checkUrl(url);
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    throw new GatewayError(error.code, error.message, { ...error.details, param: "config.base_url" });
  }
}
