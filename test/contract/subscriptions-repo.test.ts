import { twoInstancesOfFile, twoInstancesOfServer } from "../support/two-instances.ts";
import { describeSubscriptionRepo } from "./subscriptions-repo.ts";

describeSubscriptionRepo("file", twoInstancesOfFile);
describeSubscriptionRepo("server", twoInstancesOfServer);
