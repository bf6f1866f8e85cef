/** Lambda: the streaming routes, behind API Gateway's REST API with `responseTransferMode: STREAM`. */
import { composeFunction } from "./compose-function.ts";
import { createApp } from "./http/app.ts";
import { createStreamingHandler } from "./http/lambda.ts";
import { streamedRoutes } from "./http/routes/streamed.ts";

const { app, log, finish } = await composeFunction("own");

/** @public The runtime calls it by name. */
export const handler = createStreamingHandler(createApp(app, streamedRoutes), log, finish);
