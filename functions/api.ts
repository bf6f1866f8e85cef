/** Lambda: every route that answers at once, behind API Gateway's REST API. */
import { composeFunction } from "./compose-function.ts";
import { createApp } from "./http/app.ts";
import { createBufferedHandler } from "./http/lambda.ts";
import { routes } from "./http/routes/index.ts";

const { app, log, flush } = await composeFunction();

/** @public The runtime calls it by name. */
export const handler = createBufferedHandler(createApp(app, routes), log, flush);
