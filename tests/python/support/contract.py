# SPDX-License-Identifier: Apache-2.0
"""The public interface that scripts written for Horovod use, and that of hora.numpy and hora.jax, module by module:
every name, and for functions their arguments in order with the defaults. Ours may have more of both.

A default that is not a literal (Average, Compression.none, a process set) stands here as ... .
"""

_OPTIONS = "process_set=..."
_SCALES = "prescale_factor=1.0, postscale_factor=1.0"

#: What every framework's module has.
COMMON = """
init(comm=None, process_sets=None) shutdown() is_initialized()
start_timeline(file_path, mark_cycles=False) stop_timeline()
size() rank() local_size() local_rank() cross_size() cross_rank()
mpi_threads_supported() mpi_enabled() mpi_built() gloo_enabled() gloo_built() nccl_built()
ddl_built() ccl_built() cuda_built() rocm_built()
ProcessSet(ranks_or_comm) global_process_set add_process_set(process_set)
remove_process_set(process_set)
Average Sum Compression HorovodInternalError
"""

_TORCH = f"""
Adasum Min Max Product
allreduce(tensor, average=None, name=None, compression=..., op=None, {_SCALES}, {_OPTIONS})
allreduce_async(tensor, average=None, name=None, op=None, {_SCALES}, {_OPTIONS})
allreduce_(tensor, average=None, name=None, op=None, {_SCALES}, {_OPTIONS})
allreduce_async_(tensor, average=None, name=None, op=None, {_SCALES}, {_OPTIONS})
grouped_allreduce(tensors, average=None, name=None, compression=..., op=None, {_SCALES}, {_OPTIONS})
grouped_allreduce_async(tensors, average=None, name=None, op=None, {_SCALES}, {_OPTIONS})
grouped_allreduce_(tensors, average=None, name=None, op=None, {_SCALES}, {_OPTIONS})
grouped_allreduce_async_(tensors, average=None, name=None, op=None, {_SCALES}, {_OPTIONS})
sparse_allreduce_async(tensor, name, op, {_OPTIONS})
allgather(tensor, name=None, {_OPTIONS}) allgather_async(tensor, name=None, {_OPTIONS})
grouped_allgather(tensors, name=None, {_OPTIONS})
grouped_allgather_async(tensors, name=None, {_OPTIONS})
broadcast(tensor, root_rank, name=None, {_OPTIONS})
broadcast_async(tensor, root_rank, name=None, {_OPTIONS})
broadcast_(tensor, root_rank, name=None, {_OPTIONS})
broadcast_async_(tensor, root_rank, name=None, {_OPTIONS})
alltoall(tensor, splits=None, name=None, {_OPTIONS})
alltoall_async(tensor, splits=None, name=None, {_OPTIONS})
reducescatter(tensor, name=None, compression=..., op=..., {_OPTIONS}, {_SCALES})
reducescatter_async(tensor, name=None, op=..., {_OPTIONS}, {_SCALES})
grouped_reducescatter(tensors, name=None, compression=..., op=..., {_OPTIONS}, {_SCALES})
grouped_reducescatter_async(tensors, name=None, op=..., {_OPTIONS}, {_SCALES})
join(device=-1) barrier({_OPTIONS}) poll(handle) synchronize(handle)
broadcast_parameters(params, root_rank)
broadcast_optimizer_state(optimizer, root_rank, model=None)
broadcast_object(obj, root_rank=0, name=None, {_OPTIONS}) allgather_object(obj, name=None)
Compression.none.compress(tensor) Compression.none.decompress(tensor, ctx)
Compression.fp16.compress(tensor) Compression.fp16.decompress(tensor, ctx)
SyncBatchNorm(num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)
DistributedOptimizer(optimizer, named_parameters=None, compression=..., backward_passes_per_step=1, op=..., gradient_predivide_factor=1.0, num_groups=0, groups=None, sparse_as_dense=False, {_OPTIONS})
HostsUpdatedInterrupt
elastic.run(func) elastic.TorchState(model=None, optimizer=None)
elastic.ElasticSampler(dataset, shuffle=True, seed=0)
elastic.ElasticSampler.set_epoch(epoch)
elastic.ElasticSampler.record_batch(batch_idx, batch_size)
elastic.ElasticSampler.state_dict() elastic.ElasticSampler.load_state_dict(state_dict)
elastic.ElasticSampler.reset()
"""

_TENSORFLOW = f"""
Adasum Min Max Product is_homogeneous()
allreduce(tensor, average=None, device_dense='', device_sparse='', compression=..., op=None, {_SCALES}, name=None, {_OPTIONS}, ignore_name_scope=False)
reducescatter(tensor, device_dense='', compression=..., op=..., name=None, {_OPTIONS}, ignore_name_scope=False, {_SCALES})
grouped_allreduce(tensors, average=None, device_dense='', device_sparse='', compression=..., op=None, {_SCALES}, {_OPTIONS}, ignore_name_scope=False, name=None)
grouped_reducescatter(tensors, device_dense='', compression=..., op=..., {_OPTIONS}, {_SCALES})
allgather(tensor, name=None, ignore_name_scope=False, {_OPTIONS})
grouped_allgather(tensors, name=None, ignore_name_scope=False, {_OPTIONS})
broadcast(tensor, root_rank, name=None, ignore_name_scope=False, {_OPTIONS})
broadcast_(variables, root_rank, name=None, {_OPTIONS})
alltoall(tensor, splits=None, name=None, ignore_name_scope=False, {_OPTIONS})
join()
broadcast_variables(variables, root_rank, {_OPTIONS}, inplace=False)
broadcast_global_variables(root_rank)
BroadcastGlobalVariablesHook(root_rank, device='')
broadcast_object(obj, root_rank=0, session=None, name=None, {_OPTIONS})
broadcast_object_fn(root_rank=0, session=None, name=None, {_OPTIONS})
allgather_object(obj, session=None, name=None, {_OPTIONS})
size_op(process_set_id=0, name=None) process_set_included_op(process_set_id=0, name=None)
local_size_op(name=None) rank_op(name=None) local_rank_op(name=None)
SyncBatchNormalization(fused=False) check_num_rank_power_of_2(num_rank)
DistributedOptimizer(optimizer, name=None, use_locking=False, device_dense='', device_sparse='', compression=..., sparse_as_dense=False, backward_passes_per_step=1, op=..., gradient_predivide_factor=1.0, average_aggregated_gradients=False, num_groups=0, groups=None, {_OPTIONS}, scale_local_gradients=True)
DistributedGradientTape(gradtape, device_dense='', device_sparse='', compression=..., sparse_as_dense=False, op=..., gradient_predivide_factor=1.0, num_groups=0, groups=None, {_OPTIONS}, scale_local_gradients=True)
PartialDistributedGradientTape(gradtape, device_dense='', device_sparse='', compression=..., sparse_as_dense=False, op=..., gradient_predivide_factor=1.0, num_groups=0, groups=None, {_OPTIONS}, local_layers=None, scale_local_gradients=True)
HostsUpdatedInterrupt
elastic.run(func) elastic.TensorFlowState(variables=None, session=None)
elastic.TensorFlowKerasState(model, optimizer=None, backend=None)
"""

_KERAS_BOTH = """
allgather(value, name=None) broadcast(value, root_rank, name=None)
reducescatter(value, name=None, op=...) broadcast_global_variables(root_rank)
allreduce(value, name=None)
load_model(filepath, custom_optimizers=None, custom_objects=None, compression=..., legacy_opts=False)
callbacks.BroadcastGlobalVariablesCallback(root_rank, device='', local_variables=None)
callbacks.MetricAverageCallback(device='')
callbacks.LearningRateScheduleCallback(initial_lr, multiplier, start_epoch=0, end_epoch=None, staircase=True, momentum_correction=True, steps_per_epoch=None)
callbacks.LearningRateWarmupCallback(initial_lr, warmup_epochs=5, momentum_correction=True, steps_per_epoch=None, verbose=0)
elastic.run(func) elastic.KerasState(model, optimizer=None)
elastic.CommitStateCallback(state, batches_per_commit=1)
elastic.UpdateBatchStateCallback(state) elastic.UpdateEpochStateCallback(state)
"""

_TF_KERAS = f"""
DistributedOptimizer(optimizer, name=None, device_dense='', device_sparse='', compression=..., sparse_as_dense=False, gradient_predivide_factor=1.0, op=..., backward_passes_per_step=1, average_aggregated_gradients=False, num_groups=0, groups=None, {_OPTIONS}, scale_local_gradients=True)
callbacks.BestModelCheckpoint(monitor='val_loss', verbose=0, save_weights_only=False, mode='auto', save_freq='epoch')
"""

_KERAS = f"""
Adasum
DistributedOptimizer(optimizer, name=None, device_dense='', device_sparse='', compression=..., sparse_as_dense=False, gradient_predivide_factor=1.0, op=..., num_groups=0, groups=None)
PartialDistributedOptimizer(optimizer, name=None, device_dense='', device_sparse='', compression=..., sparse_as_dense=False, gradient_predivide_factor=1.0, op=..., backward_passes_per_step=1, average_aggregated_gradients=False, groups=None, {_OPTIONS}, local_layers=None, scale_local_gradients=True)
callbacks.BestModelCheckpoint(monitor='val_loss', verbose=0, mode='auto', save_freq='epoch')
"""

_MXNET = f"""
allreduce(tensor, average=None, name=None, priority=0, {_SCALES}, {_OPTIONS}, op=None)
allreduce_(tensor, average=None, name=None, priority=0, {_SCALES}, {_OPTIONS}, op=None)
grouped_allreduce(tensors, average=None, name=None, priority=0, {_SCALES}, {_OPTIONS}, op=None)
grouped_allreduce_(tensors, average=None, name=None, priority=0, {_SCALES}, {_OPTIONS}, op=None)
allgather(tensor, name=None, priority=0, {_OPTIONS})
grouped_allgather(tensors, name=None, priority=0, {_OPTIONS})
broadcast(tensor, root_rank, name=None, priority=0, {_OPTIONS})
broadcast_(tensor, root_rank, name=None, priority=0, {_OPTIONS})
alltoall(tensor, splits=None, name=None, priority=0, {_OPTIONS})
reducescatter(tensor, op=..., name=None, priority=0, {_OPTIONS}, {_SCALES})
grouped_reducescatter(tensors, op=..., name=None, priority=0, {_OPTIONS}, {_SCALES})
broadcast_object(obj, root_rank=0, name=None) allgather_object(obj, name=None)
broadcast_parameters(params, root_rank=0, prefix=None)
DistributedOptimizer(optimizer, gradient_predivide_factor=1.0, num_groups=0, {_OPTIONS})
DistributedTrainer(params, optimizer, optimizer_params=None, compression=..., gradient_predivide_factor=1.0, prefix=None, num_groups=0, {_OPTIONS})
"""

_REDUCED = f"name=None, op=None, average=None, {_SCALES}, {_OPTIONS}"
_SCATTERED = f"name=None, op=..., {_OPTIONS}, {_SCALES}"

_NUMPY = f"""
allreduce(tensor, {_REDUCED}, priority=0) allreduce_(tensor, {_REDUCED}, priority=0)
allreduce_async(tensor, {_REDUCED}, priority=0) allreduce_async_(tensor, {_REDUCED}, priority=0)
grouped_allreduce(tensors, {_REDUCED}, priority=0) grouped_allreduce_(tensors, {_REDUCED}, priority=0)
grouped_allreduce_async(tensors, {_REDUCED}, priority=0)
allgather(tensor, name=None, {_OPTIONS}, priority=0) allgather_async(tensor, name=None, {_OPTIONS}, priority=0)
grouped_allgather(tensors, name=None, {_OPTIONS}, priority=0)
grouped_allgather_async(tensors, name=None, {_OPTIONS}, priority=0)
broadcast(tensor, root_rank, name=None, {_OPTIONS}, priority=0)
broadcast_(tensor, root_rank, name=None, {_OPTIONS}, priority=0)
broadcast_async(tensor, root_rank, name=None, {_OPTIONS}, priority=0)
broadcast_async_(tensor, root_rank, name=None, {_OPTIONS}, priority=0)
alltoall(tensor, splits=None, name=None, {_OPTIONS}, priority=0)
alltoall_async(tensor, splits=None, name=None, {_OPTIONS}, priority=0)
reducescatter(tensor, {_SCATTERED}, priority=0) reducescatter_async(tensor, {_SCATTERED}, priority=0)
grouped_reducescatter(tensors, {_SCATTERED}, priority=0)
grouped_reducescatter_async(tensors, {_SCATTERED}, priority=0)
poll(handle) synchronize(handle) barrier({_OPTIONS}) join()
"""

_JAX = f"""
allreduce(tensor, {_REDUCED}, compression=...) grouped_allreduce(tensors, {_REDUCED}, compression=...)
allreduce_async(tensor, {_REDUCED})
allgather(tensor, name=None, {_OPTIONS}) allgather_async(tensor, name=None, {_OPTIONS})
grouped_allgather(tensors, name=None, {_OPTIONS})
broadcast(tensor, root_rank, name=None, {_OPTIONS}) broadcast_async(tensor, root_rank, name=None, {_OPTIONS})
alltoall(tensor, splits=None, name=None, {_OPTIONS})
reducescatter(tensor, {_SCATTERED}) grouped_reducescatter(tensors, {_SCATTERED})
poll(handle) synchronize(handle) barrier({_OPTIONS}) join()
broadcast_parameters(params, root_rank=0, name='parameters', {_OPTIONS})
allreduce_gradients(gradients, op=..., compression=..., gradient_predivide_factor=1.0, groups=None, name='gradients', {_OPTIONS})
metric_average(value, name=None, {_OPTIONS})
DistributedOptimizer(optimizer, op=..., compression=..., backward_passes_per_step=1, average_aggregated_gradients=False, gradient_predivide_factor=1.0, groups=None, name='gradients', {_OPTIONS})
"""

#: What modules have that need no framework.
PLAIN = {
    "hora.numpy": _NUMPY,
    "horovod": """
run(func, args=(), kwargs=None, num_proc=1, min_num_proc=None, max_num_proc=None, slots=None, reset_limit=None, cooldown_range=None, hosts=None, hostfile=None, host_discovery_script=None, start_timeout=None, ssh_port=None, ssh_identity_file=None, disable_cache=None, output_filename=None, verbose=None, use_gloo=None, use_mpi=None, mpi_args=None, network_interface=None, network_interfaces=None, executable=None)
""",
    "horovod.common.exceptions": """
HorovodInternalError HostsUpdatedInterrupt(skip_sync) HorovodVersionMismatchError
""",
    "horovod.common.elastic": """
State(bcast_object, get_rank) State.register_reset_callbacks(callbacks) State.on_reset()
State.on_hosts_updated(timestamp, update_res) State.commit() State.check_host_updates()
State.save() State.restore() State.sync() State.reset()
ObjectState(bcast_object, get_rank) run_fn(func, reset)
""",
    "horovod.common.process_sets": """
ProcessSet(ranks_or_comm) global_process_set add_process_set(process_set)
remove_process_set(process_set)
""",
    "horovod.common.basics": "HorovodBasics",
    "horovod.common.util": "check_extension split_list gpu_available",
    "horovod.data": """
BaseDataLoader AsyncDataLoaderMixin(async_loader_queue_size=64, debug_data_loader=False)
""",
    "horovod.runner": "run",
}

#: module -> (the framework that it needs, its names)
FRAMEWORKS = {
    "horovod.torch": ("torch", COMMON + _TORCH),
    "horovod.tensorflow": ("tensorflow", COMMON + _TENSORFLOW),
    "horovod.tensorflow.keras": ("tensorflow", COMMON + _KERAS_BOTH + _TF_KERAS),
    "horovod.keras": ("keras", COMMON + _KERAS_BOTH + _KERAS),
    "horovod.mxnet": ("mxnet", COMMON + _MXNET),
    "hora.jax": ("jax", COMMON + _JAX),
    "horovod.tensorflow.data.compute_service": (
        "tensorflow",
        "TfDataServiceConfig tf_data_service send_to_data_service compute_worker_fn",
    ),
}
