/**
 * Lambda: every route that answers whole. By streaming as well: else answers could take no longer than 29 s in an
 * account whose quota nobody has raised, nor be larger than 6 MB.
 */
import { composeFunction } from "./compose-function.ts";
import { createApp } from "./http/app.ts";
import { createStreamingHandler } from "./http/lambda.ts";
import { routes } from "./http/routes/index.ts";

const { app, log, finish } = await composeFunction("handed-on", { readsAllSchemes: true });

/** @public The runtime calls it by name. */
export const handler = createStreamingHandler(createApp(app, routes), log, { after: finish });
