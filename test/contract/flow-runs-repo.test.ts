import { twoInstancesOfFile, twoInstancesOfServer } from "../support/two-instances.ts";
import { describeFlowRunRepo } from "./flow-runs-repo.ts";

describeFlowRunRepo("file", twoInstancesOfFile);
describeFlowRunRepo("server", twoInstancesOfServer);
