/**
 * The two doors: one regional REST API for everything HTTP, one WebSocket API. Routes and functions are
 * put behind them in `api.ts` and `realtime.ts`, which need to know the addresses first.
 */
import { realtimeDomain, restDomain } from "./domain.ts";
import { logRetentionDays } from "./limits.ts";
import type { Permission } from "./permission.ts";
import { domain } from "./settings.ts";

/** Requests as the log has them: never the path, which may hold a callback's token, and no query. */
const restLogFormat = JSON.stringify({
  requestId: "$context.requestId",
  method: "$context.httpMethod",
  resource: "$context.resourcePath",
  status: "$context.status",
  latencyMs: "$context.responseLatency",
  integrationStatus: "$context.integration.status",
  integrationError: "$context.integration.error",
  ip: "$context.identity.sourceIp",
});

export const rest = new sst.aws.ApiGatewayV1("Http", {
  // Behind an edge-optimised endpoint a stream is cut after 30 silent seconds.
  endpoint: { type: "regional" },
  // The app answers preflight requests by itself.
  cors: false,
  accessLog: { retention: logRetentionDays === 30 ? "1 month" : "1 week" },
  ...(restDomain === undefined ? {} : { domain: restDomain }),
  transform: {
    // Without this, bodies that are not text reach the function damaged.
    api: { binaryMediaTypes: ["*/*"], disableExecuteApiEndpoint: domain !== undefined },
    // Without this AWS may take TLS 1.0 as well.
    domainName: { securityPolicy: "TLS_1_2" },
    stage: (args) => {
      args.accessLogSettings = $output(args.accessLogSettings).apply((settings) => ({
        destinationArn: settings?.destinationArn ?? "",
        format: restLogFormat,
      }));
      return undefined;
    },
    deployment: (args, options) => {
      // Answers of the gateway itself take effect with a deployment, too.
      options.dependsOn = gatewayResponses;
      args.triggers = $resolve([args.triggers ?? {}]).apply(([triggers]) => ({
        ...triggers,
        responses: JSON.stringify(responses),
      }));
      return undefined;
    },
  },
});

/** Answers that the gateway gives without us, in the one error shape. Codes are those of `errors/catalog.ts`. */
const responses: readonly {
  readonly on: string;
  readonly status?: number;
  readonly type: string;
  readonly code: string;
}[] = [
  { on: "DEFAULT_4XX", type: "invalid_request_error", code: "invalid_request" },
  { on: "DEFAULT_5XX", type: "api_error", code: "internal_error" },
  // It stands for a path or method that no route has.
  { on: "MISSING_AUTHENTICATION_TOKEN", status: 404, type: "not_found_error", code: "not_found" },
  { on: "REQUEST_TOO_LARGE", status: 413, type: "invalid_request_error", code: "payload_too_large" },
  { on: "THROTTLED", status: 429, type: "rate_limit_error", code: "rate_limited" },
];

const gatewayResponses = responses.map(
  ({ on, status, type, code }) =>
    new aws.apigateway.Response(`HttpAnswer${on}`, {
      restApiId: rest.nodes.api.id,
      responseType: on,
      ...(status === undefined ? {} : { statusCode: String(status) }),
      responseParameters: {
        "gatewayresponse.header.Cache-Control": "'private, no-store'",
        "gatewayresponse.header.Access-Control-Allow-Origin": "'*'",
      },
      responseTemplates: {
        "application/json": `{"error":{"message":$context.error.messageString,"type":"${type}","param":null,"code":"${code}","request_id":"$context.requestId"}}`,
      },
    }),
);

/** Base of everything HTTP, without a slash at the end. */
export const publicUrl: $util.Output<string> =
  domain === undefined
    ? $interpolate`https://${rest.nodes.api.id}.execute-api.${aws.getRegionOutput().region}.amazonaws.com/${$app.stage}`
    : $output(`https://${domain}`);

export const realtime = new sst.aws.ApiGatewayWebSocket("Realtime", {
  accessLog: { retention: logRetentionDays === 30 ? "1 month" : "1 week" },
  ...(realtimeDomain === undefined ? {} : { domain: realtimeDomain }),
});

export const realtimeUrl: $util.Output<string> = realtime.url;

/** Where functions send frames; the address of the API itself, since a domain of one's own does not serve it. */
export const pushUrl: $util.Output<string> = realtime.managementEndpoint;

export const pushFrames: Permission = {
  actions: ["execute-api:ManageConnections"],
  // Connection ids are made by the gateway, so the last part cannot be named.
  resources: [$interpolate`${realtime.nodes.api.executionArn}/*/*/@connections/*`],
};
