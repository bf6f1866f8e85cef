/** Lambda: the streaming routes, behind API Gateway's REST API with `responseTransferMode: STREAM`. */
import { composeFunction } from "./compose-function.ts";
import { createStreamingHandler } from "./http/lambda.ts";
import { createLateApp } from "./http/late-app.ts";
import { awaitedRoutes } from "./http/routes/awaited.ts";

const { app, log, finish } = await composeFunction("own");

const serving = createLateApp(
  app,
  awaitedRoutes,
  async () => (await import("./http/routes/streamed.ts")).streamedRoutes,
);

/** @public The runtime calls it by name. */
export const handler = createStreamingHandler(serving, log, { after: finish });
