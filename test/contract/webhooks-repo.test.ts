import { twoInstancesOfFile, twoInstancesOfServer } from "../support/two-instances.ts";
import { describeWebhookRepo } from "./webhooks-repo.ts";

describeWebhookRepo("file", twoInstancesOfFile);
describeWebhookRepo("server", twoInstancesOfServer);
